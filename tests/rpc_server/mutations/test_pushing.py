"""Finished branches are pushed to the configured remote, or are not made."""

import asyncio
from pathlib import Path

import pytest

from tests.rpc_server.mutations.mutation_server import served
from tests.rpc_server.mutations.project import Project
from tests.rpc_server.mutations.test_transaction import greets
from tests.support.processes import is_running
from tests.support.waiting import eventually


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    return tmp_path / "remote.git"


@pytest.fixture
def project(tmp_path: Path, remote: Path) -> Project:
    project = Project(tmp_path)
    project.git("init", "--quiet", "--bare", str(remote))
    project.git("remote", "add", "origin", str(remote))
    project.git("push", "--quiet", "origin", "main")
    return project


def _hook(remote: Path, script: str) -> Path:
    """What the remote does before it takes anything."""
    hook = remote / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\n{script}\n")
    hook.chmod(0o755)
    return hook


def _there(project: Project, remote: Path) -> str:
    return project.git("-C", str(remote), "for-each-ref", "--format=%(refname)", "refs/heads/evolve")


async def test_a_branch_is_pushed(project: Project, remote: Path) -> None:
    async with served(project, push="origin") as server:
        await server.apply("patch", diff=greets("bye"), name="r/1")
        project.git("-C", str(remote), "branch", "--delete", "--force", "evolve/r/1")  # as if it had been killed before
        result = await server.apply("patch", diff=greets("bye"), name="r/1")
    assert project.git("-C", str(remote), "rev-parse", "evolve/r/1") == result.commit


async def test_a_remote_that_refuses_rejects_the_mutation(project: Project, remote: Path) -> None:
    hook = _hook(remote, "echo no mutants here >&2; exit 1")
    before = project.digest()
    async with served(project, push="origin") as server:
        reported = await server.rejected("patch", diff=greets("bye"), name="r/1")
        assert (reported["stage"], "origin" in reported["reason"]) == ("push", True)
        assert (project.branches(), project.digest(), server.left()) == ({}, before, [])
        hook.unlink()
        await server.apply("patch", diff=greets("bye"), name="r/1")
    assert _there(project, remote) == "refs/heads/evolve/r/1"


async def test_a_branch_that_the_remote_has_otherwise_is_not_overwritten(project: Project, remote: Path) -> None:
    project.git("push", "--quiet", "origin", "main:refs/heads/evolve/r/1")
    project.git("commit", "--quiet", "--allow-empty", "-m", "more")
    project.git("push", "--quiet", "origin", "main:refs/heads/evolve/r/1")
    async with served(project, push="origin") as server:
        server.seed["git_branch"] = f"main@{project.first}"
        assert (await server.rejected("patch", diff=greets("bye"), name="r/1"))["stage"] == "push"
    assert project.branches() == {}


async def test_cancelling_while_it_is_pushed_leaves_nothing(project: Project, remote: Path, tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    _hook(remote, f"touch {begun}; while [ ! -e {go} ]; do sleep 0.01; done")
    async with served(project, push="origin") as server:
        call = asyncio.ensure_future(server.apply("patch", diff=greets("bye"), name="r/1"))
        await eventually(begun.exists)
        call.cancel()
        go.touch()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (_there(project, remote), project.branches(), server.left()) == ("", {}, [])


async def test_a_remote_that_does_not_answer_rejects_the_mutation(
    project: Project, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpc_server.worktrees.repository._PUSH_TIMEOUT_S", 0.5)
    _hook(remote, f"echo $$ > {tmp_path}/pid; exec sleep 300")
    async with served(project, push="origin") as server:
        reported = await server.rejected("patch", diff=greets("bye"), name="r/1")
    assert (reported["stage"], "took longer than 0.5 s" in reported["reason"]) == ("push", True)
    assert (_there(project, remote), project.branches()) == ("", {})
    assert not is_running(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    "source", ["the default", pytest.param("the environment's", marks=pytest.mark.long), "the configuration's"]
)
async def test_ssh_never_prompts_unless_the_user_configures_its_command(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    (programs := tmp_path / "bin").mkdir()
    (ssh := programs / "ssh").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/arguments\nexit 255\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.delenv("GIT_SSH_COMMAND", raising=False)
    if source == "the environment's":
        monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -oTheirs=yes")
    if source == "the configuration's":
        project.git("config", "core.sshCommand", "ssh -oTheirs=yes")
    project.git("remote", "set-url", "origin", "ssh://nowhere.invalid/x.git")
    async with served(project, push="origin") as server:
        assert (await server.rejected("patch", diff=greets("bye")))["stage"] == "push"
    printed = (tmp_path / "arguments").read_text()
    assert ("BatchMode=yes" in printed, "Theirs=yes" in printed) == (source == "the default", source != "the default")
