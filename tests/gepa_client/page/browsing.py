"""A browser's part of the page: a session, requests with their headers, and a stream of events that resumes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import aiohttp
import orjson

from gepa_client.page.page_server import PageServer, serving
from tests.gepa_client.page.page_state import PageState
from tests.support.loops import in_a_thread

PAGE = {"index.html": b"<!doctype html><title>page</title>", "page.js": b"'use strict';", "page.css": b"body{}"}
TIMEOUT_S = 60.0


class Browser:
    """A page open in a browser. `reset`: how often the server had it forget what it knew."""

    def __init__(self, address: str) -> None:
        base, _, fragment = address.partition("/#")
        self.base = base
        self.token = dict(part.split("=", 1) for part in fragment.split("&"))["token"]
        self.state = PageState()
        self.last: str | None = None
        self.resets = 0

    async def __aenter__(self) -> Self:
        self.http = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    async def open_session(self) -> None:
        async with self.http.post(f"{self.base}/session", json={"token": self.token}, headers=self.origin) as answer:
            assert answer.status == 200, await answer.text()
            self.key = (await answer.json())["key"]

    @property
    def origin(self) -> dict[str, str]:
        return {"Origin": self.base}

    @property
    def writes(self) -> dict[str, str]:
        """The headers of a request that changes something."""
        return {**self.origin, "X-EvolveRPC-Key": self.key}

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.http.get(f"{self.base}{path}", headers=headers) as answer:
            return answer.status, orjson.loads(await answer.read())

    async def follow(self, run: str, *, events: int | None = None) -> None:
        """Receive events until the run is complete, or `events` of them, or the connection ends."""
        headers = {"Last-Event-ID": self.last} if self.last is not None else {}
        received = 0
        name = None
        async with self.http.get(f"{self.base}/api/runs/{run}/events", headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            identity = None
            while line := await answer.content.readuntil(b"\n"):
                field, _, value = line.rstrip(b"\n").partition(b": ")
                if field == b"id":
                    identity = value.decode()
                elif field == b"event":
                    name = value.decode()
                elif field == b"data":
                    if name == "reset":
                        self.state, self.resets, name = PageState(), self.resets + 1, None
                        continue
                    assert identity is not None
                    self.state.ids.append(int(identity.rpartition("-")[2]))
                    self.state.apply(orjson.loads(value))
                    self.last = identity
                    received += 1
                    if self.state.complete or received == events:
                        return


@contextmanager
def served(url: str) -> Iterator[PageServer]:
    """A server of the page in a thread of its own; ends with all its connections."""
    server = PageServer(url, PAGE)
    with in_a_thread(serving(server)):
        yield server
