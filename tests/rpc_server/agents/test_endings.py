"""However an agent's work ends, every process that it started ends too."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from rpc_server.mutations.agents import ClaudeAgent, CommandAgent
from tests.support.scripted_anthropic import Script, Silence, use
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere only its process group ends")

ROOT = Path(__file__).parents[3]

STARTS_DAEMONS = """
sleep 601 &
setsid sleep 602 &
(setsid setsid sleep 603 &) &
nohup sh -c 'trap "" TERM INT HUP; sleep 604; sleep 604' >/dev/null 2>&1 &
python -c 'import os
os.fork() and os._exit(0)
os.setsid()
os.fork() and os._exit(0)
os.execlp("sleep", "sleep", "605")'
"""
"""Leaves five sleeping processes behind, each detached in another way."""

SLEEPS = ("sleep 601", "sleep 602", "sleep 603", "sleep 604", "sleep 605")

SERVER = """
import asyncio, json, sys
from pathlib import Path
from rpc_server.mutations.agents import AgentTask, agent_from
from rpc_server.settings.code_settings import CodeChangeSettings

async def main():
    given = json.loads(sys.argv[1])
    agent = agent_from(CodeChangeSettings(allow_mutations=True, **given["settings"]))
    await agent.work(AgentTask(Path(given["folder"]), "Make it louder.", given["environment"]), lambda _: None)

asyncio.run(main())
"""


def sleeping(workplace) -> bool:
    commands = [command.strip() for command in workplace.processes().values()]
    return all(sleep in commands for sleep in SLEEPS)


def command(then: str) -> CommandAgent:
    return CommandAgent(("sh", "-c", STARTS_DAEMONS + then), timeout_s=60.0)


def claude() -> ClaudeAgent:
    return ClaudeAgent(model="claude-sonnet-4-5", tools=("Bash",), max_turns=9, max_cost_usd=None, timeout_s=60.0)


async def test_all_processes_end_when_the_agent_ends(workplace):
    ready = workplace.folder / "ready"
    working = asyncio.create_task(workplace.work(command(f"while [ ! -e {ready} ]; do sleep 0.01; done")))
    await eventually(lambda: sleeping(workplace))

    ready.touch()
    await working

    assert not workplace.processes()


async def test_cancelling_ends_all_processes_before_it_returns(workplace):
    working = asyncio.create_task(workplace.work(command("sleep 600")))
    await eventually(lambda: sleeping(workplace))

    for _ in range(3):
        working.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await working

    assert not workplace.processes()


@pytest.mark.parametrize("passes", [0, 2])
async def test_cancelling_while_it_starts_leaves_nothing(workplace, passes):
    working = asyncio.create_task(workplace.work(command("sleep 600")))
    for _ in range(passes):
        await asyncio.sleep(0)

    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working

    assert not workplace.processes()


async def test_cancelling_the_claude_agent_ends_what_its_shell_started(workplace, model):
    model.scripts.append(Script("Make it louder.", [[use("Bash", command=STARTS_DAEMONS)], Silence()]))
    working = asyncio.create_task(workplace.work(claude()))
    await eventually(lambda: sleeping(workplace))

    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working

    assert not workplace.processes()


async def test_a_server_killed_with_sigkill_takes_its_agents_along(workplace):
    given = {
        "settings": {"agent_command": ["sh", "-c", STARTS_DAEMONS + "sleep 600"]},
        "folder": str(workplace.folder),
        "environment": workplace.environment,
    }
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER, json.dumps(given), cwd=ROOT)
    try:
        await eventually(lambda: sleeping(workplace))
    finally:
        server.kill()
        await server.wait()
    await eventually(lambda: not workplace.processes(), 5.0)
    await eventually(lambda: not list(Path(workplace.environment["TMPDIR"]).iterdir()), 5.0)
