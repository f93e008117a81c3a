"""A copy of a job's endpoints file, tokens and job token for its driver, with addresses that the driver reaches."""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Self

from evolverpc_common.files import replace_file
from sandbox_runtime import SandboxError

FOLLOW_S = 0.1
FIRST_COPIES = 20
READABLE = 0o644
"""Of files in a folder that the driver alone is shown; no other user of the machine reaches it."""

FLEET, TOKEN = "fleet", "token"


Push = Callable[[Mapping[str, str]], Awaitable[None]]


async def push_nothing(_files: Mapping[str, str]) -> None:
    """Do nothing: the driver reads the folder itself."""


class FleetMirror:
    """Keeps the copy in the folder `shared` up to date while its `async with` block lasts.

    `fleet`: the endpoints file; None without sandboxes. `token`: the file of the job token. `address`: returns the
    address by which the driver reaches a server. `push`: sends changed files, by name, to a driver on another machine.
    """

    def __init__(
        self,
        shared: Path,
        fleet: Path | None,
        token: Path,
        address: Callable[[str], str],
        push: Push = push_nothing,
    ) -> None:
        self._shared = shared
        self._followed = fleet
        self._token = token
        self._address = address
        self._push = push
        self._written: dict[str, str] = {}
        self._following: asyncio.Task[None] | None = None
        self.fleet = shared / FLEET
        self.token = shared / TOKEN

    async def __aenter__(self) -> Self:
        await self._first_copy()
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def _first_copy(self) -> None:
        """Copy; read again if a sandbox that was listed has ended, and its token is gone. Raises `OSError`."""
        for _ in range(FIRST_COPIES - 1):
            with contextlib.suppress(FileNotFoundError):
                return await self._copy()
            await asyncio.sleep(FOLLOW_S)
        return await self._copy()

    async def _follow(self) -> None:
        failure: str | None = None
        while True:
            await asyncio.sleep(FOLLOW_S)
            try:
                await self._copy()
                failure = None
            except (OSError, SandboxError) as error:  # such as a session that ends: tried again, stated once
                if str(error) != failure:
                    failure = str(error)
                    print(f"the driver's files are not up to date: {failure}", file=sys.stderr, flush=True)

    async def _copy(self) -> None:
        found = {TOKEN: self._token.read_text()}
        if self._followed is not None:
            lines = []
            for line in self._followed.read_text().splitlines():
                url, *fields = line.split()
                for each in fields:
                    name = each.partition("=")[2]
                    found[name] = (self._followed.parent / name).read_text()
                lines.append(" ".join([self._address(url), *fields]) + "\n")
            found[FLEET] = "".join(lines)  # the last one: it names the others
        files = {name: text for name, text in found.items() if self._written.get(name) != text}
        for name, text in files.items():
            replace_file(self._shared / name, text, mode=READABLE)
        if files:
            await self._push(files)
            self._written.update(files)
