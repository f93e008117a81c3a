"""`evolverpc sandboxes` lists sandboxes and sweeps orphans; commands that are printed about them run as printed."""

import os

import pytest

from gepa_client.sandboxing.session_messages import pool_log
from sandbox_runtime.backends.records import SandboxRecords
from sandbox_runtime.pool import PoolEvent
from tests.gepa_client.cli.conftest import Types
from tests.gepa_client.conftest import Cli

pytestmark = pytest.mark.usefixtures("own_state")


def left_behind(run: str) -> None:
    """One whose owner has ended."""
    owner = os.fork()
    if owner == 0:
        try:
            SandboxRecords("process").add({"run": run})
        finally:
            os._exit(0)
    os.waitpid(owner, 0)


def test_orphans_are_swept_and_sandboxes_in_use_are_not(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    left_behind("left")
    driven = f"20260801-141530-9fa3-{40 * 'n'}"
    used = SandboxRecords("process").add({"run": driven, "name": "mine"})
    for name, value in {"TTY_COMPATIBLE": "1", "TERM": "dumb", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    listed = cli("sandboxes")
    assert {driven, used.id, "orphan", "use"} <= set(listed.stdout.split())
    assert listed.stdout.splitlines()[-2:] == [
        "1 of 2 have no owner any more",
        "next: evolverpc sandboxes --sweep",
    ]
    swept = cli("sandboxes", "--sweep")
    assert "1 sandbox ended, 1 left" in swept.stdout
    assert [(row["id"], row["run"], row["name"], row["orphan"]) for row in cli("sandboxes", "--json").events] == [
        (used.id, driven, "mine", False)
    ]


def test_all_of_a_run_are_ended_by_its_name_and_no_others(cli: Cli) -> None:
    left_behind("one")
    left_behind("other")
    mine = SandboxRecords("process").add({"run": "one"})
    swept = cli("sandboxes", "--run", "one", "--sweep", "--json")
    assert swept.status == 0
    assert [row["ended"] for row in swept.events] == [True, True]
    assert mine.id in {row["id"] for row in swept.events}
    assert [row["run"] for row in cli("sandboxes", "--json").events] == ["other"]


def test_sandboxes_in_use_are_ended_only_with_a_second_flag(cli: Cli) -> None:
    SandboxRecords("process").add({"run": "one"})
    refused = cli("sandboxes", "--sweep", "--all")
    assert refused.status == 2
    assert "--yes" in refused.stderr
    swept = cli("sandboxes", "--sweep", "--all", "--yes", "--json")
    assert (swept.status, [row["ended"] for row in swept.events]) == (0, [True])
    none = cli("sandboxes", "--json")
    assert (none.status, none.events) == (0, [])


def test_contradicting_flags_are_refused(cli: Cli) -> None:
    for given in (["--all"], ["--sweep", "--yes"], ["--publish"], ["--publish", "--repo", ".", "--sweep"]):
        assert cli("sandboxes", *given).status == 2, given


def test_a_backend_that_cannot_be_listed_is_named_and_the_others_are_shown(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr("sandbox_runtime.backends.bubblewrap.backend.BubblewrapBackend.found", broken)
    left_behind("one")
    shown = cli("sandboxes")
    assert shown.status == 3
    assert "orphan" in shown.stdout
    assert "bubblewrap: not yours" in shown.stderr


def test_commands_printed_of_sandboxes_that_are_left_behind(cli: Cli, types: Types) -> None:
    left_behind("one")
    named = cli("sandboxes", "--sandbox", "process")
    swept = types(named.stdout, "evolverpc sandboxes").stdout
    assert "1 sandbox ended, 0 left" in swept
    assert "no runs" in types(swept, "evolverpc runs").stdout
    left_behind("two")
    not_freed = PoolEvent("not_freed", 0, 2, "2 did not end within 30 s")
    notice = pool_log(not_freed)
    assert notice is not None
    assert "1 sandbox ended, 0 left" in types(notice.text, "evolverpc sandboxes").stdout
    unknown = cli("sandboxes", "exec", "absent", "--", "true")
    assert unknown.status == 2
    none = types(unknown.stderr, "evolverpc sandboxes").stdout
    assert "no runs" in types(none, "evolverpc runs").stdout
