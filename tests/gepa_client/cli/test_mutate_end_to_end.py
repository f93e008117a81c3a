"""`evolverpc mutate` and a real server beside a real repository; patches need no agent."""

import json
import os
import sys
from pathlib import Path

import pytest

from sandbox_runtime import ServerEndpoint, running_server
from tests.gepa_client.conftest import Ran, environment
from tests.gepa_client.stored_code import git
from tests.support.forked_client import ForkServer

pytestmark = pytest.mark.long
PROGRAM = """
seed_candidate = {"greeting": "hello"}


def run(example, candidate):
    return candidate["greeting"]


def score(example, output):
    return 0.0
"""
SERVER = ("-m", "rpc_server", "--program", "program.py", "--python", sys.executable, "--allow-mutations")
CHECK = f"{sys.executable} -c 'import program; assert program.score({{}}, 0) <= 1, 42'"


def made_with(repository: Path, old: str, new: str) -> str:
    """A patch of the program, which stays as it is."""
    path = repository / "program.py"
    path.write_text(path.read_text().replace(old, new))
    patch = git(repository, "diff")
    git(repository, "checkout", "--quiet", "--", ".")
    return patch


def mutate(fork_server: ForkServer, folder: Path, endpoint: ServerEndpoint, *arguments: str) -> Ran:
    status, stdout, stderr = fork_server.run(
        ["mutate", endpoint.url, *arguments], folder=folder, environment=environment() | {"GEPA_TOKEN": endpoint.token}
    )
    return Ran(status, stdout.decode(), stderr.decode())


def test_two_steps_one_upon_the_other_and_a_third_that_the_check_refuses(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet", "--initial-branch", "main")
    (repository / "program.py").write_text(PROGRAM)
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "first")
    for name, new in (("half", "return 0.5"), ("all", "return 1.0"), ("more", "return 2.0")):
        old = "return 0.5" if name == "all" else "return 0.0"
        (tmp_path / f"{name}.patch").write_text(
            made_with(repository, "return 0.0", new).replace("-    return 0.0", f"-    {old}")
        )
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    before = git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD")
    server = [sys.executable, *SERVER, "--check-command", CHECK]
    home = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": os.devnull}
    with running_server(server, cwd=repository, env=home) as endpoint:
        rows = ("--examples", "rows.jsonl")
        first = mutate(fork_server, tmp_path, endpoint, "--patch", "half.patch", *rows, "--output", "first.json")
        assert first.status == 0, first.stdout + first.stderr
        assert "score 0 -> 0.5, mean of 2 rows" in first.stdout
        second = mutate(
            fork_server, tmp_path, endpoint, "--patch", "all.patch", *rows, "--candidate", "first.json", "--json"
        )
        printed = json.loads(second.stdout)
        assert (printed["score_before"], printed["score_after"]) == (0.5, 1.0)
        refused = mutate(fork_server, tmp_path, endpoint, "--patch", "more.patch")
        assert refused.status == 1
        assert "rejected at stage check" in refused.stdout
        assert "42" in refused.stdout
        assert "+    return 2.0" in refused.stdout
        misfit = mutate(fork_server, tmp_path, endpoint, "--patch", "all.patch")
        assert "what to do: make the patch against the commit of the candidate" in misfit.stdout
    assert (git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD")) == before
    branches = git(repository, "for-each-ref", "--format=%(refname:short)", "refs/heads/evolve/").split()
    assert printed["branch"] in branches
    assert len(branches) == 2
    git(repository, "merge", "--quiet", printed["branch"])
    assert (repository / "program.py").read_text() == PROGRAM.replace("0.0", "1.0")
