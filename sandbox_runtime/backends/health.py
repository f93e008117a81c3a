"""Whether the server at an endpoint is ready: `GET /health`, asked until it is or the time is over."""

import asyncio
from urllib.parse import unquote, urlsplit

import aiohttp

from sandbox_runtime.api.endpoint import Endpoint

ATTEMPT_S = 15.0
"""How long one request may wait for its answer: in the backlog of a socket whose server is not up yet, mostly."""

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5


async def until_healthy(endpoint: Endpoint, within_s: float) -> None:
    """Return when the server answers 200.

    A request to a listening socket waits until its server accepts it; what is refused or answered otherwise is asked
    again.

    Raises:
        TimeoutError: it did not within `within_s` seconds; the message has the last fault.
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


def reached_by(url: str) -> tuple[aiohttp.BaseConnector, str]:
    """What connects to an endpoint's `url`, and the URL to ask there, without a path."""
    parts = urlsplit(url)
    if parts.scheme == "http+unix":
        return aiohttp.UnixConnector(unquote(parts.netloc)), "http://localhost"
    return aiohttp.TCPConnector(), f"{parts.scheme}://{parts.netloc}"
