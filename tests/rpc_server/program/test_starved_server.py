"""A server that gets no processor time while rows run: they are judged by what their own process measured."""

import asyncio
import os
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from gepa_client import RpcClient
from rpc_server.program import process_pool

DATA = Path(__file__).parent / "data"
LIMIT_S = 1.0
WAYS = {"threads": {"program": "hangs.py", "threads": 4}, "async": {"program": "hangs_async.py"}}


def row(number, do="behave", **more):
    return {"number": number, "do": do, "seconds": 0, **more}


def starve_until_answered(pool):
    """Block this event loop, which is the server's, until its only busy process has answered and the limit is over."""
    end = time.monotonic() + LIMIT_S
    [slot] = [slot for slot in pool._slots if slot.running]
    assert select.select([slot.process._pipes.stdout], [], [], 20)[0]
    time.sleep(max(0.0, end - time.monotonic()))


@pytest.mark.parametrize("way", WAYS)
async def test_a_row_that_exceeds_its_limit_while_the_server_is_starved_is_a_timeout(opened, until, way, monkeypatch):
    monkeypatch.setattr(process_pool, "GRACE_S", 0.3)
    async with opened(workers=1, example_timeout_s=LIMIT_S, **WAYS[way]) as running:
        guilty = asyncio.create_task(running.one(row(0, "hold_for", held=1.2 * LIMIT_S)))
        await until(lambda: running.program._running)
        starve_until_answered(running.program)
        result = await guilty
    assert (result["status"], result["error"]["message"]) == (
        "timeout",
        "ran longer than 1 s while no other example ran in its process",
    )


async def test_a_row_within_its_limit_is_no_timeout_if_its_server_is_stopped_meanwhile(fork_server, until, tmp_path):
    begun, awaited = tmp_path / "begun", tmp_path / "awaited"
    waiting = row(7, "wait_for", begun=str(begun), awaited=str(awaited))
    flags = (
        "--root",
        str(DATA),
        "--python",
        sys.executable,
        "--program",
        str(DATA / "hangs.py"),
        "--example-timeout-s",
        str(LIMIT_S),
    )
    with fork_server.running_server(*flags) as endpoint:
        async with RpcClient(endpoint.url, token=endpoint.token) as client:
            evaluated = asyncio.create_task(client.evaluate({"prompt": ""}, [{"id": "a", "data": waiting}]))
            await until(begun.exists)
            os.kill(endpoint.pid, signal.SIGSTOP)
            awaited.touch()
            await asyncio.sleep(LIMIT_S)
            os.kill(endpoint.pid, signal.SIGCONT)
            [result] = (await evaluated)["results"]
    assert (result["status"], result["output"]) == ("ok", None)
