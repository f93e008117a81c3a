"""The story of a prompt that is improved, promoted and delivered, in steps which a test takes at any service."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.gepa_service.github_server import INSTALLATION, LoopbackGitHub, loopback_github
from tests.gepa_service.jobs.test_secrets_of_jobs import model
from tests.gepa_service.routes.conftest import Caller
from tests.gepa_service.routes.test_repositories import installed
from tests.sandbox_runtime.source.repositories import commit, git

PROGRAM = """
import json
from pathlib import Path

DELIVERED = Path(__file__).parent / ".gepa" / "best_candidate.json"
seed_candidate = json.loads(DELIVERED.read_text()) if DELIVERED.is_file() else {"prompt": "plain"}


def run(example, candidate):
    return candidate["prompt"] + " " + example["text"]


def score(example, output):
    return 1.0 if "better" in output else 0.1, "use better"
"""
TESTS = """
import program


def check(text):
    output = program.run({"text": text}, program.seed_candidate)
    assert output.endswith(text), output
    assert program.score({"text": text}, output)[0] == 1.0, output


check("one")
"""


@asynccontextmanager
async def github_and_model(folder: Path, program: str = PROGRAM) -> AsyncIterator[tuple[LoopbackGitHub, str]]:
    """A private repository with the program, and the base URL of a model that answers `better`."""
    files = {"program.py": program, "test_program.py": TESTS, "gepa.toml": 'program = "program.py"\n'}
    commit(folder / "program", files)
    async with loopback_github(folder / "github") as github:
        github.add("acme/words", folder / "program")
        with model(lambda _: None) as base_url:
            yield github, base_url


async def submitted(github: LoopbackGitHub, base_url: str, owner: Caller) -> str:
    """Connect the repository by the App and submit its optimization; return the job's id."""
    rows = [{"text": f"row {at}"} for at in range(40)]
    assert (await owner("PUT", "/secrets/OPENAI_API_KEY", {"value": "sk-story"})).status_code < 300
    assert (await installed(github, owner)).status_code == 200
    connect = {"repo_url": github.url("acme/words"), "installation_id": str(INSTALLATION)}
    connected = await owner("POST", "/connect-git", connect)
    assert connected.status_code == 200, connected.text
    request = {
        "client_id": connected.json()["client_id"],
        "trainset": rows[:6],
        "valset": rows[6:12],
        "testset": rows[12:],
        "max_metric_calls": 40,
        "reflection_lm": "openai/m",
        "options": {"model_providers": {"openai": {"base_url": base_url, "key_env": "OPENAI_API_KEY"}}},
    }
    answered = await owner("POST", "/optimize", request)
    assert answered.status_code == 202, answered.text
    job_id: str = answered.json()["job_id"]
    return job_id


async def promoted_and_delivered(owner: Caller, rival: Caller, job: dict[str, Any]) -> tuple[Any, Any]:
    """Promote and deliver what a completed job has made; return its delivery and its version."""
    assert job["status"] == "completed", json.dumps(job)
    assert job["best_candidate"] == {"prompt": "better"}
    certificate = (await owner("GET", f"/job/{job['job_id']}/certificate")).json()
    assert certificate["verdict"] == "improved", certificate
    version = f"/program/{job['program_id']}"
    for path, body in (("/promote", {}), ("/deliver", {})):
        assert (await rival("POST", version + path, body)).status_code == 404
        done = await owner("POST", version + path, body)
        assert done.status_code == 200, done.text
    return done.json(), (await owner("GET", version)).json()


async def check_delivery(folder: Path, github: LoopbackGitHub, delivered: Any, shown: Any) -> None:
    """Check the pull request: its branch holds the best candidate and passes the tests, which its base does not."""
    base = git(folder / "program", "rev-parse", "HEAD")
    assert (shown["active"], shown["verdict"], shown["base_commit"]) == (True, "improved", base)
    (pull,) = github.pulls
    assert (pull["head"], pull["base"]) == (delivered["branch"], "trunk")
    assert "improved" in pull["body"]
    bare = github.root / "acme" / "words.git"
    assert git(bare, "rev-parse", f"{delivered['branch']}^") == base
    git(folder, "clone", "--quiet", "--branch", delivered["branch"], str(bare), "delivered")
    branch = folder / "delivered"
    assert json.loads((branch / ".gepa" / "best_candidate.json").read_text()) == {"prompt": "better"}
    for where, status in ((branch, 0), (folder / "program", 1)):
        command = [sys.executable, "test_program.py"]
        tested = await asyncio.to_thread(subprocess.run, command, cwd=where, timeout=60, check=False)
        assert tested.returncode == status, where
