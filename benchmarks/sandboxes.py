"""What sandboxes cost: a start, a command, and 20 starts at once, against plain processes in turn.

The program is the tickets example at the commit that is checked out, with its environment installed before anything is
timed. A plain start is a server in the folder of that program; a plain command is a child process. The first 20 of a
fresh runtime are `cold`, later ones `warm`. The last line is JSON.

    python benchmarks/sandboxes.py
"""

import asyncio
import contextlib
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sandbox_runtime import Closed, Open, Runtime, running_server  # noqa: E402  the repository is not a package
from sandbox_runtime.backends import RuntimeKind, open_runtime  # noqa: E402
from sandbox_runtime.source import ClientSandbox, ClientSettings, Source  # noqa: E402

PROGRAM = ROOT / "examples" / "tickets" / "python"
AT_ONCE = 20
ROUNDS = 3
COMMANDS = 20
BACKENDS: tuple[RuntimeKind, ...] = ("process", "bubblewrap")
LIMITS = {"bubblewrap_20_warm_s": 6.0, "bubblewrap_20_cold_s": 10.0}

Figures = dict[str, list[float]]


@contextlib.asynccontextmanager
async def plain(count: int) -> AsyncIterator[None]:
    """So many servers as plain processes, started at once."""
    command = [str(Path(sys.executable).parent / "gepa-server"), "--python", sys.executable]
    async with contextlib.AsyncExitStack() as stack:
        servers = [running_server(command, cwd=PROGRAM) for _ in range(count)]
        await asyncio.gather(*(asyncio.to_thread(server.__enter__) for server in servers))
        for server in servers:
            stack.push_async_callback(asyncio.to_thread, server.__exit__, None, None, None)
        yield


@contextlib.asynccontextmanager
async def sandboxes(runtime: Runtime, source: Source, count: int) -> AsyncIterator[list[ClientSandbox]]:
    """So many sandboxes, started at once."""
    settings = ClientSettings(egress=Open() if runtime.name == "process" else Closed())
    boxes = [ClientSandbox(runtime, source, settings, name=f"box-{number}") for number in range(count)]
    try:
        await asyncio.gather(*(box.start() for box in boxes))
        yield boxes
    finally:
        await asyncio.gather(*(box.close() for box in boxes))


async def per_command(run: Callable[[], Awaitable[object]]) -> float:
    """Median seconds of one command, one after the other."""
    times = []
    for _ in range(COMMANDS):
        began = time.perf_counter()
        await run()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


async def child() -> None:
    """Return what an exec does, without a sandbox."""
    process = await asyncio.create_subprocess_exec("bash", "-c", "true")
    await process.wait()


async def measure() -> int:
    """Measure, print, end with the line of JSON; 1 where a limit is missed."""
    found: Figures = defaultdict(list)
    source = Source(str(PROGRAM))
    async with contextlib.AsyncExitStack() as stack:
        runtimes = {kind: await stack.enter_async_context(open_runtime(kind)) for kind in BACKENDS}
        for kind, runtime in runtimes.items():
            settings = ClientSettings(egress=Open() if kind == "process" else Closed())
            await ClientSandbox(runtime, source, settings, on_progress=print).prepare()
        for number in range(ROUNDS + 1):
            heat = "warm" if number else "cold"
            for count in (AT_ONCE, 1) if number else (AT_ONCE,):
                began = time.perf_counter()
                async with plain(count):
                    found[f"plain_{count}_{heat}_s"].append(time.perf_counter() - began)
                for kind, runtime in runtimes.items():
                    began = time.perf_counter()
                    async with sandboxes(runtime, source, count) as boxes:
                        found[f"{kind}_{count}_{heat}_s"].append(time.perf_counter() - began)
                        if count == 1:
                            found[f"{kind}_exec_s"].append(await per_command(lambda: boxes[0].exec_bash("true")))
            if number:
                found["plain_exec_s"].append(await per_command(child))
    medians = {name: round(statistics.median(values), 4) for name, values in sorted(found.items())}
    for name, value in medians.items():
        print(f"{name}: {value:g}")
    ratios = {
        f"{kind}_vs_plain": round(medians[f"{kind}_20_warm_s"] / medians["plain_20_warm_s"], 2) for kind in BACKENDS
    }
    print(json.dumps({**medians, **ratios, "at_once": AT_ONCE, "rounds": ROUNDS, "limits": LIMITS}))
    return int(any(medians[key] > limit for key, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(asyncio.run(measure()))
