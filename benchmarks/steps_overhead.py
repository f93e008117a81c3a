"""What recording 20 steps an example adds to a call of 2 KB, and what a program that could record steps but does not.

Servers of the same program, called in turn over one connection each: one that takes no `trace`, one that takes it
and uses it for nothing, one that has 20 steps; also the last with traces wanted, by reference as a client asks for them
(`kept`) and in the answer (`sent`). Then the same in TypeScript (`ts_`), where a program that records nothing is plain.
A figure is the median over rounds of the ratio of medians within a round, to the plain program of the same language.
The last line is JSON; the exit status is 1 if a limit is missed.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sandbox_runtime import running_server  # noqa: E402

SERVER = str(Path(sys.executable).with_name("gepa-server"))
PACKAGE = ROOT / "clients" / "typescript" / "dist" / "index.js"
KEPT: dict[str, Any] = {"capture_traces": True, "_meta": {"group": "a"}}
SENT: dict[str, Any] = {"capture_traces": True}


def _python(*env: str) -> list[str]:
    return [SERVER, "--program", "traced_program.py", *(part for one in env for part in ("--env", one))]


def _typescript(steps: int) -> list[str]:
    return ["node", "traced_program.mjs", str(steps), str(PACKAGE)]


WAYS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "plain": (_python(), {}),
    "unused": (_python("STEPS=0"), {}),
    "steps": (_python("STEPS=20"), {}),
    "kept": (_python("STEPS=20"), KEPT),
    "sent": (_python("STEPS=20"), SENT),
    "ts_plain": (_typescript(0), {}),
    "ts_steps": (_typescript(20), {}),
    "ts_kept": (_typescript(20), KEPT),
    "ts_sent": (_typescript(20), SENT),
}
"""Name -> the command of the server, and params of the call."""
LIMITS = {"steps_vs_plain": 1.05, "unused_vs_plain": 1.02, "ts_steps_vs_plain": 1.05}
CALLS = 200


async def seconds_of(session: aiohttp.ClientSession, url: str, given: dict[str, Any]) -> float:
    """Return the median seconds of a call with these params."""
    batch = [{"id": "a", "data": {"text": "y" * 1900}}]
    params = {"candidate": {"rules": "Answer."}, "batch": batch, **given}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "evaluate", "params": params}).encode()
    taken = []
    for _ in range(CALLS):
        began = time.perf_counter()
        async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
            answer = await response.read()
        taken.append(time.perf_counter() - began)
        assert b'"status":"ok"' in answer, answer[:200]
    return statistics.median(taken)


async def measure(rounds: int) -> dict[str, list[float]]:
    """Return the seconds of a call by way and round."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    async with contextlib.AsyncExitStack() as stack:
        opened = {}
        for way, (command, given) in WAYS.items():
            server = stack.enter_context(running_server(command, cwd=ROOT / "benchmarks"))
            headers = {"Authorization": f"Bearer {server.token}"}
            session = await stack.enter_async_context(aiohttp.ClientSession(headers=headers))
            opened[way] = (session, server.url, given)
        for number in range(rounds + 1):
            order = list(opened.items())
            for way, (session, url, given) in order if number % 2 else reversed(order):
                taken = await seconds_of(session, url, given)
                if number:  # the first round warms up
                    found[way].append(taken)
    return found


def _plain(way: str) -> str:
    return "ts_plain" if way.startswith("ts_") else "plain"


def main() -> int:
    """Measure, end with the line of JSON; 0 if every limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    found = asyncio.run(measure(parser.parse_args().rounds))
    figures = {
        f"{way}_vs_plain": round(statistics.median(a / b for a, b in zip(taken, found[_plain(way)], strict=True)), 3)
        for way, taken in found.items()
        if way != _plain(way)
    }
    medians = {way: round(statistics.median(taken) * 1e6) for way, taken in found.items()}
    print(json.dumps({**figures, "limits": LIMITS, "microseconds": medians, "steps": 20, "calls": CALLS}))
    return int(any(figures[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
