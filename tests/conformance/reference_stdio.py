"""The reference server as a program over stdio: `python -m tests.conformance.reference_stdio [DEFECT]`."""

import asyncio
import json
import signal
import sys

from protocol import CAPABILITIES
from tests.conformance.reference_server import Reference

OFFERED = {"proposals", "scoring", "score_trajectories", "finalize", "steps", "exact_values", "reflective_datasets"}


async def serve(broken: str) -> None:
    """Answer every line of the input."""
    server = Reference(broken=broken, without=frozenset(CAPABILITIES.keys() - OFFERED))
    server.open()
    if server.bad("ignores_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    lines = asyncio.StreamReader(limit=2**26)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    async def answer(line: bytes) -> None:
        print(json.dumps(await server.answer_one(json.loads(line))), flush=True)

    async with asyncio.TaskGroup() as running:
        async for line in lines:
            task = running.create_task(answer(line))
            if server.bad("reads_when_done"):
                await task
        if server.bad("ignores_end"):
            await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(serve("".join(sys.argv[1:])))
