"""`gepa-server --allow-mutations` as a process: settings that it refuses or warns of at the start."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rpc_server.mutations.agents import CLAUDE_CREDENTIALS
from tests.rpc_server.mutations.project import Project

WAIT_S = 30
ROOT = Path(__file__).parents[3]
AGENT = ("--agent-command", "true")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@asynccontextmanager
async def started(project: Project, *arguments: str, **variables: str) -> AsyncIterator[asyncio.subprocess.Process]:
    usual = ("--program", "app.py", "--python", sys.executable, "--workers", "1", "--allow-mutations")
    inherited = {name: value for name, value in os.environ.items() if name not in CLAUDE_CREDENTIALS}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rpc_server", *usual, "--tree-dir", str(project.folder.parent / "state"), *arguments),
        cwd=project.folder,
        env={**inherited, "PYTHONPATH": str(ROOT), **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), WAIT_S)


async def refusal(project: Project, *arguments: str, **variables: str) -> str:
    """Return the error of a server that does not start because of its settings."""
    async with started(project, *arguments, **variables) as process:
        _, reported = await asyncio.wait_for(process.communicate(), WAIT_S)
        assert process.returncode == 2, reported.decode()
        return reported.decode()


async def stderr_until_ready(project: Project, *arguments: str, **variables: str) -> str:
    """Return what a server has written to stderr when it is ready."""
    async with started(project, *arguments, **variables) as process:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), WAIT_S)
        process.send_signal(signal.SIGTERM)
        _, reported = await asyncio.wait_for(process.communicate(), WAIT_S)
        assert process.returncode == 0
        return reported.decode()


CHECKS = {
    "sh -c 'echo 1 failed; exit 1'": ("every change would be rejected: 'sh' exited with status 1", "    1 failed"),
    "nopebin": ("every change would be rejected: 'nopebin'", "    cannot start nopebin: No such file"),
    "sh -c 'echo x >> texts.py'": ("`check_command` changes files", "'texts.py'"),
}


@pytest.mark.parametrize("check", CHECKS)
async def test_a_check_that_the_code_as_it_is_does_not_pass_is_refused(project: Project, check: str) -> None:
    reported = await refusal(project, *AGENT, "--check-command", check)
    assert [part for part in CHECKS[check] if part not in reported] == [], reported
    assert list((project.folder.parent / "state/servers").iterdir()) == []


async def test_a_check_that_passes_is_run_on_what_is_committed(project: Project) -> None:
    reported = await stderr_until_ready(project, *AGENT, "--check-command", "test -e app.py -a ! -e uncommitted.txt")
    assert (
        f"candidates start from main@{project.first[:12]} of {project.folder}; left out, as untracked: 1 files"
        in reported
    )
    assert "clients may have true change the code" in reported


@pytest.mark.parametrize(("ending", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_a_check_at_the_start_ends_by_a_signal(project: Project, ending: signal.Signals, status: int) -> None:
    reached = project.beside / "reached"
    os.mkfifo(reached)
    check = f"sh -c 'echo $$ > {reached}; exec sleep 300'"
    async with started(project, *AGENT, "--no-jail", "--check-command", check) as process:
        pid = int(await asyncio.wait_for(asyncio.to_thread(reached.read_text), WAIT_S))
        process.send_signal(ending)
        assert await asyncio.wait_for(process.wait(), WAIT_S) == status
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


REFUSED = {
    "../agent.py": "`agent_command`: there is no ../agent.py in {root}",
    "python3 ../agent.py": "`agent_command`: there is no ../agent.py in {root}",
    "notes/one.txt": "`agent_command`: notes/one.txt in {root} cannot be executed",
    "nopebin": "`agent_command`: there is no command 'nopebin' on PATH",
    "": "`--agent-command` is empty: name a command, or leave it out for Claude",
}


@pytest.mark.parametrize("command", REFUSED)
async def test_an_agent_that_is_not_there_is_refused(project: Project, command: str) -> None:
    assert REFUSED[command].format(root=project.folder) in await refusal(project, "--agent-command", command)


@pytest.mark.parametrize("command", ["../beside/agent.py", "python3 ../beside/agent.py"])
async def test_an_agent_is_found_from_the_root_and_called_by_its_own_name(project: Project, command: str) -> None:
    agent = project.beside / "agent.py"
    agent.write_text("#!/usr/bin/env python3\n")
    agent.chmod(0o755)
    assert "clients may have agent.py change" in await stderr_until_ready(project, "--agent-command", command)


async def test_claude_without_a_key_is_warned_of(project: Project) -> None:
    assert "warning: Claude has no ANTHROPIC_API_KEY" in await stderr_until_ready(project)
    assert "warning" not in await stderr_until_ready(project, ANTHROPIC_API_KEY="of no use")


async def test_without_bubblewrap_the_server_names_what_agents_can_reach(project: Project) -> None:
    (commands := project.beside / "bin").mkdir()
    for name in ("git", "true", "env", "sh"):
        (commands / name).symlink_to(str(shutil.which(name)))
    reported = await stderr_until_ready(project, *AGENT, PATH=str(commands))
    assert "can change .git/hooks, .git/config, your working tree and your home folder" in reported
    assert "There is no jail: `jail` needs bubblewrap, and no bwrap is on PATH" in reported
    assert "`jail` needs bubblewrap" in await refusal(project, *AGENT, "--jail", PATH=str(commands))


async def test_a_program_that_is_not_committed_is_reported_as_such(project: Project) -> None:
    (project.folder / "app2.py").write_text((project.folder / "app.py").read_text())
    reported = await refusal(project, *AGENT, "--program", "app2.py")
    assert "there is no file app2.py (did you mean app.py?); app2.py is not committed, and candidates run" in reported
    assert "from commits: git add app2.py" in reported
