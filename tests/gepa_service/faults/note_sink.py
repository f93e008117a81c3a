"""Receives what programs in sandboxes note, by HTTP through their gateway, as they see no file of this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from tests.support.loops import in_a_thread
from tests.support.web_hosts import web_host


@contextmanager
def note_sink(folder: Path) -> Iterator[str]:
    """Append the body of each request to the file of `folder` that its path names; yield the URL."""

    async def append(request: web.Request) -> web.Response:
        body = await request.read()
        with (folder / request.path.removeprefix("/")).open("ab", buffering=0) as log:
            log.write(body)
        return web.Response(status=204)

    with in_a_thread(web_host(append)) as host:
        yield f"http://{host}"
