"""What watching the calls of examples costs: this checkout against another one, set up, in `--baseline PATH`.

Servers of one program, of both checkouts and in both languages, run at once; each example makes 20 calls to a model on
loopback, whole answers or streams of 40 events. Ways and checkouts come in a random order, and servers are started anew
for each of `--launches`, since one start of the same code differs from another by several percent. A figure is the
median over all rounds of the ratio of seconds within a round; `processor` has the same of the processor time of all
processes together, which other load on the machine changes less. The last line is JSON; the exit status is 1 if a
ratio of seconds is above the limit.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sandbox_runtime import running_server  # noqa: E402  the repository is not a package

LIMIT = 1.05
WAYS = {
    "python": ("once", "stream", "once_async", "stream_async"),
    "typescript": ("once", "stream"),
}
WHOLE = json.dumps(
    {
        "id": "1",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "this " * 200}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 200, "total_tokens": 300},
    }
).encode()
_DELTA = {"id": "1", "model": "m", "choices": [{"index": 0, "delta": {"content": "this "}, "finish_reason": None}]}
EVENTS = [b"data: %s\n\n" % json.dumps(_DELTA).encode()] * 40 + [b"data: [DONE]\n\n"]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection as a model."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            if b'"stream"' in await reader.readexactly(size):
                writer.write(b"HTTP/1.1 200 -\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
                for event in EVENTS:
                    writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                writer.write(b"0\r\n\r\n")
            else:
                kind = b"content-type: application/json\r\ncontent-length: %d" % len(WHOLE)
                writer.write(b"HTTP/1.1 200 -\r\n%s\r\n\r\n%s" % (kind, WHOLE))
    writer.close()


async def be_the_model() -> None:
    """Serve until the process is ended."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def command_of(language: str, checkout: Path) -> list[str]:
    """Return the command of a server. The interpreter and the packages of the program are this checkout's for both."""
    if language == "typescript":
        return ["node", "watched_program.mjs", str(checkout / "clients" / "typescript" / "dist" / "index.js")]
    server = str(checkout / ".venv" / "bin" / "gepa-server")
    return [server, "--program", "watched_program.py", "--python", sys.executable, "--workers", "1"]


def processor_s() -> float:
    """Return the processor time of this process and of all below it; 0 except on Linux."""
    waiting, nanoseconds = [os.getpid()], 0
    while waiting:
        for thread in Path(f"/proc/{waiting.pop()}/task").glob("*"):
            with contextlib.suppress(OSError):  # it has ended
                nanoseconds += int((thread / "schedstat").read_text().split()[0])
                waiting += map(int, (thread / "children").read_text().split())
    return nanoseconds / 1e9


async def seconds_of(session: aiohttp.ClientSession, url: str, way: str, examples: int) -> tuple[float, float]:
    """Return the seconds of some examples, one after another, and those of processors."""
    batch = [{"id": "a", "data": {"way": way}}]
    params = {"candidate": {"rules": "Answer."}, "batch": batch}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "evaluate", "params": params}).encode()
    began, worked = time.perf_counter(), processor_s()
    for _ in range(examples):
        async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
            text = await response.read()
        assert b'"status":"ok"' in text, text[:300]
    return time.perf_counter() - began, processor_s() - worked


Ratios = dict[str, list[tuple[float, float]]]
"""By language and way: the ratios of seconds and of processor time of each round."""


async def measure(given: argparse.Namespace, model: str, ratios: Ratios) -> None:
    """Start the servers once, and add the ratios of `--rounds` rounds to `ratios`."""
    baseline = given.baseline.resolve()
    languages, rounds, examples = given.languages, given.rounds, given.examples
    env = {"MODEL_URL": model}
    async with contextlib.AsyncExitStack() as stack:
        opened: dict[tuple[str, str], tuple[Any, str]] = {}
        for language in languages:
            for name, checkout in (("this", ROOT), ("baseline", baseline)):
                command = command_of(language, checkout)
                server = stack.enter_context(running_server(command, cwd=ROOT / "benchmarks", env=env))
                headers = {"Authorization": f"Bearer {server.token}"}
                session = await stack.enter_async_context(aiohttp.ClientSession(headers=headers))
                opened[language, name] = (session, server.url)
        ways = [(language, way) for language in languages for way in WAYS[language]]
        for number in range(rounds + 1):
            random.shuffle(ways)  # in a fixed order, garbage collection would always slow the same way
            for language, way in ways:
                order = random.sample(("this", "baseline"), 2)
                taken = {name: await seconds_of(*opened[language, name], way, examples) for name in order}
                if number:  # the first round warms up
                    pairs = zip(taken["this"], taken["baseline"], strict=True)
                    seconds, worked = (this / other if other else 1.0 for this, other in pairs)
                    ratios.setdefault(f"{language}_{way}", []).append((seconds, worked))


def main() -> int:
    """Measure, end with the line of JSON; 0 if every ratio is within the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baseline", type=Path, metavar="PATH", help="the other checkout")
    parser.add_argument("--languages", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--launches", type=int, default=7, help="times that all servers are started")
    parser.add_argument("--rounds", type=int, default=15, help="of each launch")
    parser.add_argument("--examples", type=int, default=3)
    parser.add_argument("--model", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.model:
        asyncio.run(be_the_model())
    if given.baseline is None:
        parser.error("--baseline PATH: the checkout to compare with")
    with subprocess.Popen([sys.executable, __file__, "--model"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            model = f"http://127.0.0.1:{int(process.stdout.readline())}/v1/chat/completions"
            ratios: Ratios = {}
            for _ in range(given.launches):
                asyncio.run(measure(given, model, ratios))
        finally:
            process.terminate()
    figures, processor = (
        {name: round(statistics.median(value[part] for value in values), 3) for name, values in ratios.items()}
        for part in (0, 1)
    )
    settings = {"limit": LIMIT, "launches": given.launches, "rounds": given.rounds, "calls": 20 * given.examples}
    print(json.dumps({**figures, "processor": processor, **settings}))
    return int(any(figure > LIMIT for figure in figures.values()))


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = ""  # each server is of its own checkout
    sys.exit(main())
