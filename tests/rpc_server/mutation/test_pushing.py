"""Finished branches go to the remote that the server was told, or are not made."""

from pathlib import Path

import pytest

from tests.rpc_server.mutation.project import Project
from tests.rpc_server.mutation.served import served
from tests.rpc_server.mutation.test_transaction import greets


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


def _refuse(remote: Path) -> Path:
    hook = remote / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho no mutants here >&2\nexit 1\n")
    hook.chmod(0o755)
    return hook


def _there(project: Project, remote: Path) -> str:
    return project.git("-C", str(remote), "for-each-ref", "--format=%(refname)", "refs/heads/evolve")


async def test_a_branch_is_pushed(project: Project, remote: Path) -> None:
    async with served(project, push="origin") as server:
        result = await server.apply("patch", diff=greets("bye"), name="r/1")
    assert project.git("-C", str(remote), "rev-parse", "evolve/r/1") == result.commit


async def test_a_rejected_mutation_is_not_pushed(project: Project, remote: Path) -> None:
    async with served(project, push="origin", deny=("*",)) as server:
        await server.rejected("patch", diff=greets("bye"))
    assert _there(project, remote) == ""


async def test_a_remote_that_refuses_rejects_the_mutation(project: Project, remote: Path) -> None:
    hook = _refuse(remote)
    before = project.digest()
    async with served(project, push="origin") as server:
        told = await server.rejected("patch", diff=greets("bye"), name="r/1")
        assert (told["stage"], "origin" in told["reason"]) == ("push", True)
        assert (project.branches(), project.digest(), server.left()) == ({}, before, [])
        hook.unlink()
        await server.apply("patch", diff=greets("bye"), name="r/1")
    assert _there(project, remote) == "refs/heads/evolve/r/1"


async def test_a_remote_that_is_gone_rejects_the_mutation(project: Project, tmp_path: Path) -> None:
    project.git("remote", "set-url", "origin", str(tmp_path / "gone.git"))
    async with served(project, push="origin") as server:
        assert (await server.rejected("patch", diff=greets("bye")))["stage"] == "push"
        assert project.branches() == {}


async def test_a_branch_that_the_remote_has_otherwise_is_not_overwritten(project: Project, remote: Path) -> None:
    project.git("push", "--quiet", "origin", "main:refs/heads/evolve/r/1")
    project.git("commit", "--quiet", "--allow-empty", "-m", "more")
    project.git("push", "--quiet", "origin", "main:refs/heads/evolve/r/1")
    async with served(project, push="origin") as server:
        server.seed["git_branch"] = f"main@{project.first}"
        assert (await server.rejected("patch", diff=greets("bye"), name="r/1"))["stage"] == "push"
    assert project.branches() == {}


async def test_what_was_made_and_not_yet_pushed_is_pushed_when_asked_again(project: Project, remote: Path) -> None:
    async with served(project) as server:
        result = await server.apply("patch", diff=greets("bye"), name="r/1")
    async with served(project, push="origin") as server:
        assert await server.apply("patch", diff=greets("bye"), name="r/1") == result
    assert _there(project, remote) == "refs/heads/evolve/r/1"
