"""Run a command in a sandbox that another process owns: that process answers on a socket in its session's folder.

One line of JSON each way: an `ExecRequest`, then an `ExecResponse`. The folder is readable by its owner alone. A closed
connection cancels the command.
"""

import asyncio
import contextlib
import os
import shlex
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from evolverpc_common.shielded import finished_before
from sandbox_runtime import CommandResult, SandboxError
from sandbox_runtime.endpoints_file import endpoints_folders
from sandbox_runtime.source import ClientSandbox

SOCKET = "exec.sock"
LONGEST_LINE = 16 * 2**20
"""Bytes of a line: more than two outputs of `EXEC_BYTES` take in base64."""

FindSandbox = Callable[[str], ClientSandbox | None]
"""Returns the running sandbox of this id, if the session has it."""


class NoSuchSandbox(Exception):
    """No session of this user has a running sandbox with this id."""


class ExecRequest(BaseModel):
    """Run `argv` in the sandbox `id`, in the program's folder, for at most `timeout_s` seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    argv: tuple[str, ...]
    timeout_s: float


class ExecResponse(BaseModel):
    """The result of a command, or why it could not be run; neither if the session has no such sandbox."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    result: CommandResult | None = None
    error: str | None = None


async def exec_in_sandbox(request: ExecRequest) -> CommandResult:
    """Run a command in a sandbox of any session of this user.

    Raises:
        NoSuchSandbox: no session has it. SandboxError: the sandbox has ended, or its session did while it ran.
    """
    for folder in endpoints_folders():
        try:
            with _short_path(folder) as path:
                reader, writer = await asyncio.open_unix_connection(path, limit=LONGEST_LINE)
        except OSError:
            continue  # a session that is starting or has ended
        try:
            writer.write(request.model_dump_json().encode() + b"\n")
            await writer.drain()
            line = await reader.readline()
        finally:
            writer.close()
        if not line:
            raise SandboxError(f"the session of sandbox {request.id} ended while the command ran")
        response = ExecResponse.model_validate_json(line)
        if response.error is not None:
            raise SandboxError(response.error)
        if response.result is not None:
            return response.result
    raise NoSuchSandbox(request.id)


@contextlib.asynccontextmanager
async def serving_exec(folder: Path, find: FindSandbox) -> AsyncIterator[None]:
    """Answer requests for the session's sandboxes while the block runs. Raises OSError."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            closed = asyncio.ensure_future(reader.read(1))
            try:
                done = await finished_before(closed, _respond(line, find))
                if done is not None:
                    writer.write(done.result().model_dump_json().encode() + b"\n")
                    await writer.drain()
            finally:
                closed.cancel()
                await asyncio.gather(closed, return_exceptions=True)
        except (OSError, ValueError):
            return  # the client is gone, or sent a line without an end
        finally:
            writer.close()

    with _short_path(folder) as path:
        server = await asyncio.start_unix_server(serve, path, limit=LONGEST_LINE)
    try:
        yield
    finally:
        server.close()


async def _respond(line: bytes, find: FindSandbox) -> ExecResponse:
    try:
        request = ExecRequest.model_validate_json(line)
        sandbox = find(request.id)
        if sandbox is None:
            return ExecResponse()
        return ExecResponse(result=await sandbox.exec_bash(shlex.join(request.argv), request.timeout_s))
    except (ValidationError, SandboxError, OSError) as error:
        return ExecResponse(error=str(error))


@contextlib.contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    """Return the socket's path through an open folder: the path of a socket has at most 107 bytes."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)
