"""Versions: listed, shown, promoted, rolled back, delivered."""

import asyncio
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from gepa_service.api.routes import delivery
from gepa_service.jobs.promotions import promote, promotions_of
from gepa_service.model.program_version import Delivery, Installation, Program, Promotion, Repository
from gepa_service.model.work import Work
from gepa_service.records import TenantRecords
from tests.gepa_service.github_server import INSTALLATION, LoopbackGitHub
from tests.gepa_service.routes.conftest import Caller
from tests.sandbox_runtime.source.repositories import commit, git

FORCE = {"force": True, "reason": "a fix by hand"}


def version(acme: TenantRecords, name: str, **fields: Any) -> Program:
    whole = {
        "line": "https://x/o/r",
        "job_id": "job_1",
        "repo_url": "https://x/o/r",
        "texts": {"prompt": name},
        **fields,
    }
    record = Program(**{"tenant": "acme", "id": f"program_{name}", **whole})
    acme.insert(record)
    return record


async def active(caller: Caller) -> str | None:
    items = (await caller("GET", "/programs/active", params={"line": "https://x/o/r"})).json()["items"]
    return items[0]["program_id"] if items else None


async def test_versions_are_listed_and_shown_with_who_promoted_them(editor: Caller, acme: TenantRecords) -> None:
    version(acme, "a", verdict="improved", parents=("program_0",), diff="d", score=0.5)
    version(acme, "own", id="an-id-of-its-own", line="own")
    version(acme, "b", line="other", job_id="job_2")
    first = (await editor("GET", "/programs?limit=2")).json()
    rest = (await editor("GET", f"/programs?after={first['next']}")).json()
    listed = [each["program_id"] for each in first["items"] + rest["items"]]
    assert (listed, rest["next"]) == (["program_b", "an-id-of-its-own", "program_a"], None)
    for query, found in (("verdict=improved", "program_a"), ("job_id=job_2", "program_b"), ("line=other", "program_b")):
        assert [each["program_id"] for each in (await editor("GET", f"/programs?{query}")).json()["items"]] == [found]
    await editor("POST", "/program/program_a/promote", FORCE)
    shown = (await editor("GET", "/program/program_a")).json()
    assert (shown["texts"], shown["parents"]) == ({"prompt": "a"}, ["program_0"])
    assert (shown["diff"], shown["active"]) == ("d", True)
    made = [(each["actor"], each["forced"]) for each in shown["promotions"]]
    assert made == [("key:acme-editor", None)], "its certificate needs no force"


@pytest.mark.parametrize(("verdict", "leaks"), [(None, False), ("no difference", False), ("improved", True)])
async def test_a_version_that_did_not_improve_is_promoted_by_force_with_a_reason_alone(
    editor: Caller, acme: TenantRecords, verdict: str | None, leaks: bool
) -> None:
    version(acme, "a", verdict=verdict, leaks=leaks)
    assert (await editor("POST", "/program/program_a/promote", {})).status_code == 409
    assert (await editor("POST", "/program/program_a/promote", {"reason": "r"})).status_code == 409
    for wrong in ({"force": True}, {"force": True, "reason": " "}, {"force": "x"}):
        assert (await editor("POST", "/program/program_a/promote", wrong)).status_code == 422
    assert await active(editor) is None
    promoted = await editor("POST", "/program/program_a/promote", FORCE)
    assert (promoted.status_code, promoted.json()["forced"]) == (200, "a fix by hand")
    assert await active(editor) == "program_a"


async def test_rollbacks_return_to_the_version_before_each(editor: Caller, acme: TenantRecords) -> None:
    for name in ("a", "b", "c"):
        version(acme, name, verdict="improved")
        assert (await editor("POST", f"/program/program_{name}/promote", {})).status_code == 200
    assert (await editor("POST", "/program/program_a/rollback")).status_code == 409
    back = (await editor("POST", "/program/program_c/rollback")).json()
    assert (back["program_id"], back["before"], back["rolled_back"]) == ("program_b", "program_c", True)
    assert (await editor("POST", "/program/program_b/rollback")).json()["program_id"] == "program_a"
    assert await active(editor) == "program_a"
    assert (await editor("POST", "/program/program_a/promote", {})).status_code == 409
    none = (await editor("POST", "/program/program_a/rollback")).json()
    assert (none["program_id"], none["before"]) == (None, "program_a")
    assert await active(editor) is None
    assert (await editor("POST", "/program/program_a/promote")).json()["before"] is None


async def test_a_rollback_returns_to_the_version_before_though_a_later_one_was_deleted(
    editor: Caller, acme: TenantRecords
) -> None:
    for name in ("a", "b", "c"):
        version(acme, name, verdict="improved")
        await editor("POST", f"/program/program_{name}/promote")
    await editor("POST", "/program/program_c/rollback")
    acme.store.remove(Promotion, acme.tenant, {"program_id": "program_c"})
    assert (await editor("POST", "/program/program_b/rollback")).json()["program_id"] == "program_a"


async def test_promotions_at_once_come_one_after_the_other(editor: Caller, acme: TenantRecords) -> None:
    names = [f"v{at}" for at in range(6)]
    made = [version(acme, name, verdict="improved") for name in names]
    await asyncio.gather(*(asyncio.to_thread(promote, acme, each, "key:k", None) for each in made))
    ordered = promotions_of(acme, line="https://x/o/r")
    assert {each.program_id for each in ordered} == {each.id for each in made}
    followers = {each.before: each.program_id for each in ordered}
    chain, at = [], None
    while at in followers:
        at = followers[at]
        chain.append(at)
    assert len(chain) == len(made)
    assert await active(editor) == chain[-1]
    promote(acme, version(acme, "w", line="another", verdict="improved"), "key:k", None)
    first = (await editor("GET", "/programs/active?limit=1")).json()
    rest = (await editor("GET", f"/programs/active?after={first['next']}")).json()
    found = {each["line"]: each["program_id"] for each in first["items"] + rest["items"]}
    assert found == {"https://x/o/r": chain[-1], "another": "program_w"}
    assert (len(first["items"]), len(rest["items"]), rest["next"]) == (1, 1, None)


@pytest.fixture
def changed(tmp_path: Path) -> tuple[Path, str, str]:
    """A repository, the commit that a version was made from, and the version's patch."""
    folder = tmp_path / "program"
    base = commit(folder, {"program.py": "print('one')\n", "other.py": "x = 1\n"})
    commit(folder, {"program.py": "print('two')\n"})
    commit(folder, {"program.py": "print('three')\n", "new.py": "y = 2\n"})
    patch = subprocess.check_output(["git", "-C", str(folder), "format-patch", "--stdout", base], text=True)
    git(folder, "reset", "--quiet", "--hard", base)
    return folder, base, patch


def connected(acme: TenantRecords, github: LoopbackGitHub, folder: Path, base: str, path: str = "") -> dict[str, Any]:
    """Serve the repository of a folder and connect it, or a path of it; return the fields of versions of `base`."""
    github.add("owner/name", folder)
    acme.insert(Installation(tenant="acme", id="42", installation_id=str(INSTALLATION), account="owner"))
    url = github.url("owner/name") + path
    given = {"installation_id": str(INSTALLATION), "default_branch": "trunk", "head": base}
    acme.insert(Repository(tenant="acme", id="client_1", repo_url=url, **given))
    return {"client_id": "client_1", "base_commit": base}


async def test_a_version_is_delivered_as_a_pull_request_once(
    github: LoopbackGitHub,
    github_client: httpx.AsyncClient,
    acme: TenantRecords,
    changed: tuple[Path, str, str],
    ended: Work,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, base, patch = changed
    certificate = {"statement": "It improved."}
    fields = {"patch": patch, "certificate": certificate, "verdict": "improved", "job_id": ended.id}
    version(acme, "a", **connected(acme, github, folder, base), **fields)
    editor = Caller(github_client, "acme-editor")
    acme.insert(Delivery(tenant="acme", id="program_a", branch="program_a", commit="", actor="key:gone"))
    assert (await editor("POST", "/program/program_a/deliver", {})).status_code == 409, "it is being delivered"
    monkeypatch.setattr(delivery, "ABANDONED_AFTER", timedelta(0))  # it was cut off
    bare = github.root / "owner" / "name.git"
    git(bare, "branch", "program_a", git(bare, "commit-tree", f"{base}^{{tree}}", "-m", "pushed by the one cut off"))
    delivered = await editor("POST", "/program/program_a/deliver", {"title": "Better answers", "base": "next"})
    assert delivered.status_code == 200, delivered.text
    assert delivered.json()["pull_request"] == github.url("owner/name/pull/1")
    assert (await editor("POST", "/program/program_a/deliver", {})).json() == delivered.json()
    (pull,) = github.pulls
    assert (pull["head"], pull["base"], pull["title"]) == ("program_a", "next", "Better answers")
    assert "It improved." in pull["body"]
    assert "Verdict of the certificate: improved" in pull["body"]
    assert git(bare, "show", "program_a:program.py") == "print('three')"
    assert git(bare, "show", "program_a:new.py") == "y = 2"
    assert git(bare, "show", "program_a:.gepa/best_candidate.json") == '{\n  "prompt": "a"\n}'
    assert git(bare, "rev-parse", "program_a^") == base
    assert git(bare, "rev-parse", "program_a") == delivered.json()["commit"]


async def test_a_delivered_branch_has_the_files_from_which_the_program_reads_its_texts(
    github: LoopbackGitHub, github_client: httpx.AsyncClient, acme: TenantRecords, tmp_path: Path
) -> None:
    config = 'root = "src"\nsaved_program_json_path = "saved.json"\nseed_candidate = "texts/seed.json"\n'
    base = commit(tmp_path / "program", {"app/gepa.toml": config, "app/src/saved.json": "{}\n"})
    saved = {"program_json": {"judge": "b\u00e4r"}, **connected(acme, github, tmp_path / "program", base, "#app")}
    version(acme, "a", **saved)
    version(acme, "b", **saved, program_json_path="made/best.json", job_id="step_1")
    editor = Caller(github_client, "acme-editor")
    for name, file in (("a", "app/src/saved.json"), ("b", "app/src/made/best.json")):
        delivered = await editor("POST", f"/program/program_{name}/deliver", {})
        assert delivered.status_code == 200, delivered.text
        bare, branch = github.root / "owner" / "name.git", delivered.json()["branch"]
        assert branch == f"program_{name}"
        assert git(bare, "show", f"{branch}:{file}") == '{\n  "judge": "b\u00e4r"\n}'
        assert git(bare, "show", f"{branch}:app/src/texts/seed.json") == f'{{\n  "prompt": "{name}"\n}}'
    assert "not available" in github.pulls[0]["body"]
    assert "not available" not in github.pulls[1]["body"], "a step has no run"


async def test_a_patch_that_does_not_apply_is_reported_and_can_be_delivered_later(
    github: LoopbackGitHub, github_client: httpx.AsyncClient, acme: TenantRecords, changed: tuple[Path, str, str]
) -> None:
    folder, base, patch = changed
    broken = patch.replace("print('one')", "print('none')")
    version(acme, "a", patch=broken, **connected(acme, github, folder, base))
    editor = Caller(github_client, "acme-editor")
    for _ in range(2):
        refused = await editor("POST", "/program/program_a/deliver", {})
        assert refused.status_code == 502
        assert "ghs_" not in refused.text
    assert github.pulls == []


async def test_other_hosts_get_a_patch(editor: Caller, acme: TenantRecords) -> None:
    version(acme, "a", patch="From 0\n", base_commit="0" * 40)
    version(acme, "b")
    patched = (await editor("POST", "/program/program_a/deliver", {"mode": "patch"})).json()
    assert (patched["patch"], patched["base_commit"]) == ("From 0\n", "0" * 40)
    assert (await editor("POST", "/program/program_b/deliver", {"mode": "patch"})).status_code == 409
    assert (await editor("POST", "/program/program_a/deliver", {})).status_code == 409
    for wrong in ({"mode": "email"}, {"base": "a b"}, {"title": "two\nlines"}, {"title": "a\0b"}, {"title": ""}):
        assert (await editor("POST", "/program/program_a/deliver", wrong)).status_code == 422
