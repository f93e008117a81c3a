"""One sandbox of plain processes."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evolverpc_common.files import remove_tree
from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import LOG_BYTES, ProcessEndpoint, SandboxError
from sandbox_runtime.api.spec import MEMORY_VARIABLE, Command, SandboxSpec
from sandbox_runtime.backends.local_sandbox import LocalSandbox
from sandbox_runtime.backends.process.commands import ProcessLimits, RunningCommand
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords

STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProcessSandbox(LocalSandbox):
    """See `LocalSandbox`. `workspace`: a new folder of its own."""

    def __init__(
        self,
        spec: SandboxSpec,
        record: SandboxRecord,
        records: SandboxRecords,
        workspace: Path,
        ended: Callable[[LocalSandbox], None],
    ) -> None:
        super().__init__(spec, record, records, OutputTail(LOG_BYTES), ended)
        self._workspace = workspace
        self._limits = ProcessLimits(memory=spec.limits.memory_mb * 2**20, file=spec.limits.workspace_mb * 2**20)
        self._commands: set[asyncio.Future[None]] = set()
        self._main: RunningCommand | None = None

    async def make(self) -> None:
        for folder in (self._workspace, self._workspace / "home", self._workspace / "tmp"):
            folder.mkdir(mode=0o700)

    async def listen(self, *ports: int) -> list[socket.socket]:
        opened: list[socket.socket] = []
        try:
            for _ in ports:  # this machine's loopback: any ports that are free
                opened.append(socket.create_server(("127.0.0.1", 0)))  # noqa: PERF401  closed below at a failure
        except OSError:
            for each in opened:
                each.close()
            raise
        return opened

    def own_variables(self) -> Mapping[str, str]:
        paths = [str(self._workspace / "program" / path) for path in self.spec.prepared.import_paths]
        return {
            "PATH": ":".join((str(self._workspace / "bin"), *self.spec.prepared.path, STANDARD_PATH)),
            "HOME": str(self._workspace / "home"),
            "TMPDIR": str(self._workspace / "tmp"),
            "LANG": "C.UTF-8",
            **self.spec.prepared.env,
            **({"PYTHONPATH": ":".join(paths)} if paths else {}),
        }

    def server_variables(self) -> Mapping[str, str]:
        return {MEMORY_VARIABLE: str(self.spec.limits.memory_mb)}

    async def run(
        self, command: Command, env: Mapping[str, str], stdout: OutputTail, stderr: OutputTail | None
    ) -> int | None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commands.add(ended)
        over = asyncio.ensure_future(self.over.wait())
        try:
            running = RunningCommand.start(
                command.argv,
                mark=self.id,
                folder=self._workspace / command.cwd,
                env=env,
                limits=self._limits,
                stdout=stdout,
                stderr=stderr,
                stdin=command.stdin,
            )
            waited: set[asyncio.Future[Any]] = {running.exited, over}
            try:
                await asyncio.wait(waited, timeout=command.timeout_s, return_when=asyncio.FIRST_COMPLETED)
                in_time = running.exited.done()
            finally:
                await await_shielded(running.end())
            if over.done() and not in_time:
                raise self._gone()
            return running.exited.result() if in_time else None
        finally:
            over.cancel()
            self._commands.discard(ended)
            ended.set_result(None)

    async def begin_server(self, env: Mapping[str, str], listening: int) -> "asyncio.Future[int]":
        self._main = main = RunningCommand.start(
            self.spec.main.argv,
            mark=self.id,
            folder=self._workspace / self.spec.main.cwd,
            env=env,
            limits=replace(self._limits, memory=-1),
            stdout=self.log,
            listening=listening,
        )
        return main.exited

    async def clear(self) -> None:
        if self._commands:
            await asyncio.wait(list(self._commands))
        if self._main is not None and not await self._main.end():
            raise SandboxError(f"process {self._main.pid} and those below it cannot be ended")
        await asyncio.to_thread(remove_tree, self._workspace)
        await asyncio.to_thread(self.records.remove, self._record)

    def _endpoint(self) -> ProcessEndpoint:
        assert self._main is not None, "it is up"  # noqa: S101
        found = super()._endpoint()
        return ProcessEndpoint(found.url, found.token, pid=self._main.command)
