"""A TCP proxy for HTTP that cuts, delays, truncates, duplicates and answers 502, at random but repeatably."""

import asyncio
from collections import Counter
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Self

import aiohttp
from aiohttp import web

from tests.support.loops import LoopThread
from tests.support.web_hosts import web_host

FAULTS = ("cut_before", "cut_after", "delay", "truncate", "duplicate", "502")
LONGEST_DELAY_S = 0.2
OF_A_CONNECTION = {"Connection", "Content-Length", "Transfer-Encoding"}


class Proxy(LoopThread):
    """Stands before `upstream_port` on loopback; each request suffers a fault with probability `rate`.

    `cut_before`: the request never gets there. `cut_after`: it was answered, and the answer is lost. `truncate`: half
    of the answer arrives. `duplicate`: it is sent twice at once. `502`: it was answered, and a proxy in between returns
    so. `did` counts what happened, by fault.
    """

    def __init__(self, upstream_port: int, random: Random, rate: float) -> None:
        super().__init__()
        self.upstream_port = upstream_port
        self.did: Counter[str] = Counter()
        self._random = random
        self._rate = rate
        self._host: AbstractAsyncContextManager[str] = web_host(self._answer)

    def __enter__(self) -> Self:
        super().__enter__()
        self.url = f"http://{self.run(self._host.__aenter__())}"
        return self

    def __exit__(self, *ended: object) -> None:
        self.run(self._host.__aexit__(None, None, None))
        super().__exit__(*ended)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """Deal with one request."""
        fault = self._random.choice(FAULTS) if self._random.random() < self._rate else "none"
        self.did[fault] += 1
        body = await request.read()
        if fault == "cut_before":
            return _cut(request)
        if fault == "delay":
            await asyncio.sleep(self._random.uniform(0, LONGEST_DELAY_S))
        asked = [self._forward(request, body) for _ in range(2 if fault == "duplicate" else 1)]
        answer = (await asyncio.gather(*asked))[0]
        if answer is None or fault == "cut_after":
            return _cut(request)
        if fault == "502":
            return web.Response(status=502, text="<html>Oh no.</html>", content_type="text/html")
        if fault != "truncate":
            return answer
        whole = bytes(answer.body) if isinstance(answer.body, bytes) else b""
        part = web.StreamResponse(status=answer.status, headers={**answer.headers, "Content-Length": str(len(whole))})
        await part.prepare(request)
        await part.write(whole[: len(whole) // 2])
        if request.transport is not None:
            request.transport.close()  # what was written arrives; the rest never does
        return part

    async def _forward(self, request: web.Request, body: bytes) -> web.Response | None:
        """Ask the server behind, on a connection of its own; None if there is no answer."""
        url = f"http://127.0.0.1:{self.upstream_port}{request.path_qs}"
        headers = {name: value for name, value in request.headers.items() if name not in OF_A_CONNECTION}
        try:
            async with (
                aiohttp.ClientSession(auto_decompress=False) as session,
                session.request(request.method, url, headers=headers, data=body or None) as answer,
            ):
                kept = {name: value for name, value in answer.headers.items() if name not in OF_A_CONNECTION}
                return web.Response(status=answer.status, headers=kept, body=await answer.read())
        except (aiohttp.ClientError, OSError):
            return None


def _cut(request: web.Request) -> web.Response:
    """Reset the connection, as of a cable that was cut."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
