"""`evolverpc serve --allow-mutations` as a process: settings that it refuses or warns of at the start."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rpc_server.mutations.agents import CLAUDE_CREDENTIALS
from tests.gepa_client.started_command import StartedCommand
from tests.rpc_server.conftest import Refusal
from tests.rpc_server.mutations.project import Project
from tests.rpc_server.server_process import WAIT_S, server_process
from tests.support.forked_client import SERVER, ForkServer

AGENT = ("--agent-command", "true")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def command_line(project: Project, *arguments: str) -> list[str]:
    usual = ("--program", "app.py", "--python", sys.executable, "--workers", "1", "--allow-mutations")
    return [*usual, "--tree-dir", str(project.folder.parent / "state"), *arguments]


@pytest.fixture
def stderr_until_ready(project: Project, fork_server: ForkServer) -> Callable[..., str]:
    """Returns what a server has written to stderr when it is ready."""

    inherited = {name: value for name, value in os.environ.items() if name not in CLAUDE_CREDENTIALS}

    def run(*arguments: str, **variables: str) -> str:
        process = StartedCommand(
            fork_server,
            command_line(project, *arguments),
            folder=project.folder,
            environment={**inherited, **variables},
            module=SERVER,
        )
        try:
            process.lines.readline()
            process.terminate()
            _, reported = process.communicate(WAIT_S)
        finally:
            process.kill()
        assert process.returncode == 0, reported
        return reported

    return run


CHECKS = {
    "sh -c 'echo 1 failed; exit 1'": ("every change would be rejected: 'sh' exited with status 1", "    1 failed"),
    "sh -c 'echo x >> texts.py'": ("`check_command` changes files", "'texts.py'"),
}


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_that_the_code_as_it_is_does_not_pass_is_refused(
    project: Project, check: str, refusal: Refusal
) -> None:
    reported = refusal(project.folder, *command_line(project, *AGENT, "--check-command", check))
    assert [part for part in CHECKS[check] if part not in reported] == [], reported
    assert list((project.folder.parent / "state/servers").iterdir()) == []


def test_a_check_that_passes_is_run_on_what_is_committed(
    project: Project, stderr_until_ready: Callable[..., str]
) -> None:
    project.write({"notes/one.txt": "mine\n"})
    reported = stderr_until_ready(*AGENT, "--check-command", "test -e app.py -a ! -e uncommitted.txt")
    start = f"candidates start from main@{project.first[:12]} of {project.folder}"
    assert f"{start}; left out, as not committed: notes/one.txt; left out, as untracked: 1 files" in reported
    assert "clients may have true change the code" in reported
    assert "changes may touch every file, that of the score too" in reported


async def test_a_check_at_the_start_ends_by_a_signal(project: Project) -> None:
    reached = project.beside / "reached"
    os.mkfifo(reached)
    check = f"sh -c 'echo $$ > {reached}; exec sleep 300'"
    arguments = command_line(project, *AGENT, "--no-jail", "--check-command", check)
    async with server_process(project.folder, *arguments) as process:
        pid = int(await asyncio.wait_for(asyncio.to_thread(reached.read_text), WAIT_S))
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), WAIT_S) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


REFUSED = {
    "python3 ../agent.py": "`agent_command`: there is no ../agent.py in {root}",
    "": "`agent_command` is empty: name a command, or leave it out for Claude",
}


@pytest.mark.parametrize("command", REFUSED)
def test_an_agent_that_is_not_there_is_refused(project: Project, command: str, refusal: Refusal) -> None:
    reported = refusal(project.folder, *command_line(project, "--agent-command", command))
    assert REFUSED[command].format(root=project.folder) in reported


def test_claude_without_a_key_is_warned_of(stderr_until_ready: Callable[..., str]) -> None:
    assert "warning: Claude has no ANTHROPIC_API_KEY" in stderr_until_ready()
    assert "warning" not in stderr_until_ready(ANTHROPIC_API_KEY="of no use")


def test_without_bubblewrap_the_server_names_what_agents_can_reach(
    project: Project, refusal: Refusal, stderr_until_ready: Callable[..., str]
) -> None:
    (commands := project.beside / "bin").mkdir()
    for name in ("git", "true", "env", "sh"):
        (commands / name).symlink_to(str(shutil.which(name)))
    reported = stderr_until_ready(*AGENT, PATH=str(commands))
    assert "can change .git/hooks, .git/config, your working tree and your home folder" in reported
    assert "There is no jail: `jail` needs bubblewrap, and no bwrap is on PATH" in reported
    demanded = command_line(project, *AGENT, "--jail")
    assert "`jail` needs bubblewrap" in refusal(project.folder, *demanded, PATH=str(commands))


def test_a_program_that_is_not_committed_is_reported_as_such_and_nothing_is_left(
    project: Project, refusal: Refusal
) -> None:
    (project.folder / "app2.py").write_text((project.folder / "app.py").read_text())
    reported = refusal(project.folder, *command_line(project, *AGENT, "--program", "app2.py"))
    assert "there is no file app2.py (did you mean app.py?); candidates run from commits" in reported
    assert list((project.folder.parent / "state/servers").iterdir()) == []
