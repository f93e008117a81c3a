"""However an agent's work ends, every process that it started ends too."""

import asyncio
import sys

import pytest

from rpc_server.mutations.agents import Agent
from tests.rpc_server.agents.test_claude_agent import claude
from tests.support.scripted_anthropic import Script, Silence, use
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere only its process group ends")

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


def sleeping(workplace) -> bool:
    commands = [command.strip() for command in workplace.processes().values()]
    return all(sleep in commands for sleep in SLEEPS)


def command(then: str) -> Agent:
    return Agent("sh", ("sh", "-c", STARTS_DAEMONS + then), 60.0)


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
