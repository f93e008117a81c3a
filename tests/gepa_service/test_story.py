"""The whole way over HTTP: a private repository is connected, its prompt and its code improved, promoted, delivered."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from gepa_client.analysis.mutation_outcomes import code_history
from gepa_client.evolution.checkout import LocalCheckout
from gepa_client.journal.store import open_store
from gepa_service.jobs.tenant_secrets import revealed
from gepa_service.secrets.master_key import MasterKey
from gepa_service.secrets.vault import Vault
from tests.gepa_service.github_server import INSTALLATION, LoopbackGitHub, loopback_github
from tests.gepa_service.jobs.test_secrets_of_jobs import model
from tests.gepa_service.platform import MASTER, Platform, platform, working
from tests.gepa_service.routes.conftest import Caller
from tests.gepa_service.routes.test_payloads import has_fields
from tests.gepa_service.routes.test_repositories import installed
from tests.gepa_service.routes.test_steps_and_batches import polled
from tests.gepa_service.serving import served
from tests.sandbox_runtime.source.repositories import commit, git
from tests.support import scripted_anthropic
from tests.support.processes import processes_with

pytestmark = pytest.mark.timeout(400)
WAIT_S = 250.0
TEXTS = ".gepa/best_candidate.json"
PROGRAM = """
import json
from pathlib import Path

DELIVERED = Path(__file__).parent / ".gepa" / "best_candidate.json"
seed_candidate = json.loads(DELIVERED.read_text()) if DELIVERED.is_file() else {"prompt": "plain"}


def run(example, candidate):
    return candidate["prompt"] + " " + shown(example["text"])


def shown(text):
    return text


def score(example, output):
    wanted = [example["prompt"] in output, output.endswith(example["end"])]
    return 0.5 + 0.25 * sum(wanted), f"wanted {example['prompt']} and {example['end']}"
"""
GOAL = """
import program

example = {"text": "one", "prompt": "better", "end": END}
output = program.run(example, program.seed_candidate)
assert program.score(example, output)[0] == 1.0, output
"""
"""What the delivered branch does, and the repository as it was does not."""

TESTS = """
import unittest

import program


class Shown(unittest.TestCase):
    def test_a_text_keeps_its_letters(self):
        self.assertEqual(program.shown("one").lower(), "one")
"""
SHOUT = "Show each text in capital letters"
SETTINGS = """
program = "program.py"
allow_mutations = true
check_command = ["python", "-m", "unittest", "-q", "test_program"]
deny = ["test_*.py", "goal.py"]
"""


@asynccontextmanager
async def service_with(github: LoopbackGitHub, opened: Platform) -> AsyncIterator[tuple[Caller, Caller]]:
    """Serve the whole API; yield an owner of `acme` and one of another tenant."""
    opened.github = github.app()
    vault = Vault(opened.records, [MasterKey(MASTER)])
    keys = [opened.key(tenant, "owner") for tenant in ("acme", "rival")]
    parts = opened.parts(revealed=partial(revealed, vault))
    place = replace(opened.place(), sandbox="bubblewrap")
    with served(opened.parts(webhook_key=MASTER, vault=vault)) as url, working(parts, place):
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            yield Caller(client, keys[0]), Caller(client, keys[1])


async def ended(owner: Caller, job_id: str, wait_s: float = WAIT_S) -> dict[str, Any]:
    """Follow the stream of a job to its end; return the job."""
    async with asyncio.timeout(wait_s):
        headers = {"Authorization": f"Bearer {owner.key}"}
        async with owner.client.stream("GET", f"/job/{job_id}/stream", headers=headers, timeout=wait_s) as stream:
            lines = [line async for line in stream.aiter_lines()]
    assert "event: end" in lines
    found: dict[str, Any] = (await owner("GET", f"/job/{job_id}")).json()
    return found


@dataclass(frozen=True)
class Delivered:
    """The job and its version as the API shows them, and a clone of the branch of the pull request."""

    job: dict[str, Any]
    version: dict[str, Any]
    clone: Path


@asynccontextmanager
async def private_repository(folder: Path, files: Mapping[str, str], end: str) -> AsyncIterator[LoopbackGitHub]:
    """A GitHub with a private repository of these files. `end`: how outputs of the program are to end."""
    commit(folder / "program", {"goal.py": GOAL.replace("END", repr(end)), **files})
    async with loopback_github(folder / "github") as github:
        github.add("acme/words", folder / "program")
        yield github


async def submitted(
    github: LoopbackGitHub, owner: Caller, end: str, secrets: Mapping[str, str], request: Mapping[str, Any]
) -> str:
    """Connect the repository by the App and submit its optimization; return the job's id.

    `secrets`: of the tenant. `request`: of the job, beside its rows.
    """
    rows = [{"text": f"row {at}", "prompt": "better", "end": f"ROW {at}" if end == "ONE" else ""} for at in range(40)]
    for name, value in secrets.items():
        assert (await owner("PUT", f"/secrets/{name}", {"value": value})).status_code < 300
    assert (await installed(github, owner)).status_code == 200
    connect = {"repo_url": github.url("acme/words"), "installation_id": str(INSTALLATION)}
    connected = await owner("POST", "/connect-git", connect)
    assert connected.status_code == 200, connected.text
    client_id = connected.json()["client_id"]
    splits = {"trainset": rows[:6], "valset": rows[6:12], "testset": rows[12:]}
    answered = await owner("POST", "/optimize", {"client_id": client_id, **splits, **request})
    assert answered.status_code == 202, answered.text
    job_id: str = answered.json()["job_id"]
    return job_id


async def delivered(
    folder: Path, github: LoopbackGitHub, owner: Caller, rival: Caller, job: dict[str, Any]
) -> Delivered:
    """Promote and deliver what a completed job has made."""
    logs = (await owner("GET", f"/job/{job['job_id']}/logs")).text
    assert job["status"] == "completed", json.dumps(job) + logs
    has_fields(job, "job")
    certificate = (await owner("GET", f"/job/{job['job_id']}/certificate")).json()
    assert certificate["verdict"] == "improved", certificate
    version = f"/program/{job['program_id']}"
    for path, body in (("/promote", {}), ("/deliver", {})):
        assert (await rival("POST", version + path, body)).status_code == 404
        done = await owner("POST", version + path, body)
        assert done.status_code == 200, done.text
    shown = (await owner("GET", version)).json()
    base = git(folder / "program", "rev-parse", "HEAD")
    assert (shown["active"], shown["verdict"], shown["base_commit"]) == (True, "improved", base)
    (pull,) = github.pulls
    assert (pull["head"], pull["base"]) == (done.json()["branch"], "trunk")
    assert "improved" in pull["body"]
    bare = github.root / "acme" / "words.git"
    assert git(bare, "rev-parse", f"{pull['head']}^") == base
    assert git(bare, "rev-parse", pull["head"]) == done.json()["commit"]
    git(folder, "clone", "--quiet", "--branch", pull["head"], str(bare), "delivered")
    return Delivered(job, shown, folder / "delivered")


async def status_of(folder: Path, *arguments: str) -> int:
    """Run Python in a folder; return its exit status."""
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, *arguments], cwd=folder, timeout=60, check=False, capture_output=True
    )
    return ran.returncode


async def check_goal(folder: Path, clone: Path) -> None:
    """The delivered branch reaches the goal, which the repository as it was does not; tests pass in both."""
    for where, goal in ((clone, 0), (folder / "program", 1)):
        assert await status_of(where, "-m", "unittest", "-q", "test_program") == 0
        assert await status_of(where, "goal.py") == goal


async def test_code_and_prompt_are_changed_by_the_coding_agent_and_the_pull_request_has_both_and_passes_its_tests(
    tmp_path: Path,
) -> None:
    files = {"program.py": PROGRAM, "test_program.py": TESTS, "gepa.toml": SETTINGS}
    path = "{folder}/program.py"
    turns = [
        ["I look first.", {"tool": "Read", "input": {"file_path": path}}],
        [
            {
                "tool": "Edit",
                "input": {"file_path": path, "old_string": "return text\n", "new_string": "return text.upper()\n"},
            }
        ],
        [{"tool": "Bash", "input": {"command": "python -m unittest -q test_program", "description": "Run the tests"}}],
        ["Done."],
    ]
    (tmp_path / "scripts.json").write_text(json.dumps([{"when": SHOUT, "turns": turns}]))
    shown, asked = list[dict[int, str]](), list[str]()
    secrets = {"OPENAI_API_KEY": "sk-of-the-reflection-model", "ANTHROPIC_API_KEY": "sk-of-the-coding-agent"}

    def answer(prompt: str) -> str:
        sought = (secrets["ANTHROPIC_API_KEY"], secrets["OPENAI_API_KEY"], github.token_prefix)
        shown.extend(processes_with(each, "environ", "cmdline") for each in sought)
        asked.append(prompt)
        return SHOUT if "Write one change request" in prompt else "better"

    with scripted_anthropic.served(tmp_path / "scripts.json") as agent, model(lambda _: None, answer) as base_url:
        providers = {
            "openai": {"base_url": base_url, "key_env": "OPENAI_API_KEY"},
            "anthropic": {
                "base_url": agent["ANTHROPIC_BASE_URL"],
                "key_env": "ANTHROPIC_API_KEY",
                "dialect": "anthropic",
            },
        }
        request = {
            "max_metric_calls": 120,
            "reflection_lm": "openai/m",
            "evolve": "both",
            "options": {
                "model_providers": providers,
                "target_score": 1.0,
                "candidate_selection_strategy": "current_best",
            },
        }
        async with private_repository(tmp_path, files, "ONE") as github:
            with platform(tmp_path) as opened:
                async with service_with(github, opened) as (owner, rival):
                    job = await ended(owner, await submitted(github, owner, "ONE", secrets, request))
                    found = await delivered(tmp_path, github, owner, rival, job)
                    task = {"row": {"text": "row", "prompt": "better", "end": "ROW"}}
                    body = {"agent_id": job["program_id"], "tasks": [task]}
                    batch = (await owner("POST", "/api/internal/rollouts/batch", body)).json()
                    [result] = (await polled(owner, batch["batch_id"]))[1]
    assert (result["status"], result["output"], result["score"]) == ("completed", "better ROW", 1.0)
    assert not any(shown), "a process shows a key of a model or the token of the repository"
    assert sum("Write one change request" in prompt for prompt in asked) >= 1
    assert (found.version["score"], found.version["texts"]["prompt"]) == (1.0, "better")
    assert json.loads((found.clone / TEXTS).read_text()) == {"prompt": "better"}
    best = commit_of_best(tmp_path, found)
    assert git(found.clone, "diff", "--name-only", best, "HEAD") == TEXTS, (
        "beside the texts, the code is the best one's"
    )
    assert git(found.clone, "diff", "--name-only", "HEAD^", "HEAD").split() == [TEXTS, "program.py"]
    await check_goal(tmp_path, found.clone)


def commit_of_best(folder: Path, found: Delivered) -> str:
    """Bring the commit of the best candidate, which is in the journal of the run, to the clone; return it."""
    job_id, branch, made = found.job["job_id"], found.version["branch"], found.version["commit"]
    with contextlib.closing(open_store(str(folder / "journals.db"))) as store:
        bundles = code_history(store, job_id, store.candidates(job_id)).bundles(made)
    LocalCheckout(found.clone).make_branch(branch, made, bundles)
    return str(made)
