"""What the gateway adds to a model's answer: a streamed completion through it against the same one straight away.

The provider and the gateway are a process each. Requests go to both in turn, so that a slow moment of the machine falls
on both alike; a figure is the median over pairs of their difference. The gateway does all it does in a run: it checks
the token, the model and the path, counts tokens, and keeps a spend cap and a rate. The last line is JSON.

    python benchmarks/gateway.py
"""

import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sandbox_runtime import Closed  # noqa: E402  the repository is not a package
from sandbox_runtime.gateway import Gateway, GatewayPolicy, GatewayPorts, ProviderCall, openai  # noqa: E402

KEY = "sk-the-key-of-the-benchmark"
PATH = "/v1/chat/completions"
EVENTS = 40
PAIRS = 600
WARM = 50
LIMITS = {"streamed_added_ms": 2.0}

CHUNK = {
    "id": "1",
    "object": "chat.completion.chunk",
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "word "}}],
}
USAGE = {"prompt_tokens": 400, "completion_tokens": EVENTS, "total_tokens": 400 + EVENTS}
WORDS = "Read the ticket and name the product it is about, in a word. " * 30


async def completion(request: web.Request) -> web.StreamResponse:
    """Answer as a provider: streamed, an event at a time, if the request asks for it."""
    asked = await request.json()
    if request.headers.get("Authorization") != f"Bearer {KEY}":
        return web.Response(status=401)
    if not asked.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", "content": "word " * EVENTS}}
        return web.json_response({"id": "1", "model": "m", "choices": [choice], "usage": USAGE})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    line = b"data: " + json.dumps(CHUNK).encode() + b"\n\n"
    for _ in range(EVENTS):
        await response.write(line)
        await asyncio.sleep(0)
    await response.write(b"data: " + json.dumps({**CHUNK, "choices": [], "usage": USAGE}).encode() + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


async def provide() -> None:
    """Serve the provider until ended; print its URL first."""
    app = web.Application()
    app.router.add_post(PATH, completion)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listening).start()
    print(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}"}), flush=True)
    await asyncio.Event().wait()


async def pass_on(url: str) -> None:
    """Serve a gateway to that provider until ended; print its URL and a sandbox's token first."""
    policy = GatewayPolicy(models=("m",), cap_usd=1000.0, calls_per_minute=1_000_000, prices={"m": (1.0, 2.0)})
    async with Gateway(
        providers=[openai(KEY, f"{url}/v1")],
        policy=policy,
        report=lambda event: None if isinstance(event, ProviderCall) else print(event, file=sys.stderr),
        listen=GatewayPorts(),
    ) as gateway:
        session = gateway.open_session("sandbox", Closed())
        assert session.models_url is not None
        env = session.env(session.models_url, None)
        printed = {"url": env["OPENAI_BASE_URL"].removesuffix("/v1"), "token": env["OPENAI_API_KEY"]}
        print(json.dumps(printed), flush=True)
        await asyncio.Event().wait()


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[dict[str, str]]:
    """Run one of the functions above as a process of its own and return its figures."""
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()


async def seconds(http: aiohttp.ClientSession, url: str, token: str, *, stream: bool) -> tuple[float, float]:
    """Of one request: until the first bytes of the answer, and until the last."""
    message = {"role": "user", "content": WORDS}
    body: dict[str, Any] = {"model": "m", "messages": [message], "max_tokens": 100, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    started = time.perf_counter()
    async with http.post(f"{url}{PATH}", json=body, headers={"Authorization": f"Bearer {token}"}) as response:
        content = await response.content.readany()
        first = time.perf_counter() - started
        content += await response.content.read()
        last = time.perf_counter() - started
    expected = b"data: [DONE]\n\n" if stream else b"}"
    if response.status != 200 or not content.endswith(expected) or content.count(b"word ") != EVENTS:
        raise SystemExit(f"a wrong answer: {response.status} {content[:300]!r}")
    return first, last


async def added(
    http: aiohttp.ClientSession, straight: str, gateway: dict[str, str], *, stream: bool
) -> dict[str, float]:
    """Milliseconds: straight, and what the gateway adds to the first bytes and to all of it."""
    firsts, lasts, plain = [], [], []
    for number in range(WARM + PAIRS):
        order = [(straight, KEY), (gateway["url"], gateway["token"])]
        times = {}
        for url, token in order if number % 2 else reversed(order):
            times[url] = await seconds(http, url, token, stream=stream)
        if number >= WARM:
            firsts.append(times[gateway["url"]][0] - times[straight][0])
            lasts.append(times[gateway["url"]][1] - times[straight][1])
            plain.append(times[straight][1])
    medians = {"straight_ms": plain, "first_added_ms": firsts, "added_ms": lasts}
    return {name: round(statistics.median(values) * 1000, 3) for name, values in medians.items()}


async def measure() -> int:
    """Measure, print, end with the line of JSON; 1 where a limit is missed."""
    with served("provider") as provider, served("gateway", provider["url"]) as gateway:
        async with aiohttp.ClientSession() as http:
            streamed = await added(http, provider["url"], gateway, stream=True)
            whole = await added(http, provider["url"], gateway, stream=False)
    for name, found in (("streamed", streamed), ("whole", whole)):
        print(f"{name}: {found['straight_ms']} ms, through the gateway {found['added_ms']} ms more")
    figures = {
        "pairs": PAIRS,
        "events": EVENTS,
        **{f"streamed_{name}": value for name, value in streamed.items()},
        **{f"whole_{name}": value for name, value in whole.items()},
    }
    print(json.dumps({**figures, "limits": LIMITS}))
    return int(any(figures[key] > limit for key, limit in LIMITS.items()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["provider"]:
        asyncio.run(provide())
    elif sys.argv[1:2] == ["gateway"]:
        asyncio.run(pass_on(sys.argv[2]))
    else:
        sys.exit(asyncio.run(measure()))
