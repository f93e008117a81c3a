"""Wait until a server is healthy, or until something else has ended first."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import aiohttp

from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import ServerEndpoint

ATTEMPT_S = 15.0
"""Seconds that one request may wait for its answer, mostly in the backlog of a server that is still starting."""

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5
_T = TypeVar("_T")


async def wait_until_healthy(endpoint: ServerEndpoint, within_s: float) -> None:
    """Return once the server answers `GET /health` with 200.

    A request to a listening socket waits until its server accepts it; one that fails is repeated.

    Raises:
        TimeoutError: it did not within `within_s` seconds; the message has the last failure.
    """
    fault = "no answer"
    try:
        async with asyncio.timeout(within_s):
            connector, url = reached_by(endpoint.url)
            headers = {"Authorization": f"Bearer {endpoint.proxy_token}"} if endpoint.proxy_token else {}
            limit = aiohttp.ClientTimeout(total=ATTEMPT_S)
            async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=limit) as session:
                pause = FIRST_PAUSE_S
                while True:
                    try:
                        async with session.get(f"{url}/health", allow_redirects=False) as answer:
                            if answer.status == 200:
                                return
                            fault = f"/health answered {answer.status}"
                    except aiohttp.ClientError as error:
                        fault = f"{type(error).__name__}: {error}"
                    except TimeoutError:
                        fault = f"no answer to /health in {ATTEMPT_S:g} s"
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_S)
    except TimeoutError:
        raise TimeoutError(f"not ready within {within_s:g} s: {fault}") from None


async def finished_before(ended: "asyncio.Future[Any]", work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T] | None:
    """Run the work until it or `ended` is done; return its finished task, or None if `ended` came first."""
    running = asyncio.create_task(work)
    running.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved, even if no caller gets it
    try:
        await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
        return running if running.done() else None
    finally:
        running.cancel()
        await await_shielded(asyncio.wait([running]))


def reached_by(url: str) -> tuple[aiohttp.BaseConnector, str]:
    """Return a connector for an endpoint's `url`, and the URL to request, without a path."""
    parts = urlsplit(url)
    if parts.scheme == "http+unix":
        return aiohttp.UnixConnector(unquote(parts.netloc)), "http://localhost"
    return aiohttp.TCPConnector(), f"{parts.scheme}://{parts.netloc}"
