"""Hosts as processes of this machine, in place of a cluster's nodes."""

import asyncio
import secrets
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from sandbox_runtime.nodes.node import HostAddress

REPOSITORY = Path(__file__).parents[2]


@dataclass
class LocalHosts:
    """A `Placement` of `count` hosts for `room` sandboxes each, after those of `before`.

    `processes`: by the names of their nodes.
    """

    count: int
    room: int = 20
    before: Sequence[HostAddress] = ()
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    state = "this machine"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes.values():
            assert process.stdin is not None
            process.stdin.close()
            assert await asyncio.wait_for(process.wait(), 30) is not None

    async def joined(self) -> AsyncGenerator[HostAddress]:
        try:
            for address in self.before:
                yield address
            for number in range(self.count):
                yield await self.start(f"node-{number}")
            await asyncio.Event().wait()
        finally:
            for process in self.processes.values():
                if process.returncode is None:
                    process.kill()

    async def start(self, node: str) -> HostAddress:
        """Start a host and return its address."""
        command = (sys.executable, "-m", "sandbox_runtime.nodes.host", "127.0.0.1")
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=REPOSITORY)
        self.processes[node] = process
        assert process.stdin is not None
        assert process.stdout is not None
        token = secrets.token_urlsafe(16)
        process.stdin.write(f"{token}\n".encode())
        return HostAddress(node, (await process.stdout.readline()).decode().strip(), self.room, token)
