"""Steps that backends share: wait until a server is healthy, capture output, close sandboxes."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Coroutine, Iterable
from typing import IO, Any, TypeVar
from urllib.parse import unquote, urlsplit

import aiohttp

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import RunningSandbox, SandboxError, SandboxNotReady, ServerEndpoint
from sandbox_runtime.api.spec import Command

ATTEMPT_S = 15.0
"""Seconds that one request may wait for its answer, mostly in the backlog of a server that is still starting."""

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5
_LOG_TAIL_BYTES = 4096
_T = TypeVar("_T")
_PIECE_BYTES = 256 * 1024


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


async def healthy_before(ended: "asyncio.Future[Any]", endpoint: ServerEndpoint, within_s: float) -> bool:
    """Wait until the server is healthy; return False if `ended` is done first. Raises `TimeoutError`."""
    healthy = await finished_before(ended, wait_until_healthy(endpoint, within_s))
    if healthy is not None:
        healthy.result()
    return healthy is not None


def not_ready(message: str, stage: str, log: OutputTail) -> SandboxNotReady:
    """Return the error of a failed start, with the end of the log."""
    tail = log.bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace")
    return SandboxNotReady(f"{message}\n{tail}".rstrip(), stage=stage, log_tail=tail)


def failure_of(command: Command, status: int | None) -> str:
    """Describe a failed setup command. `status`: None if it timed out."""
    how = f"took longer than {command.timeout_s:g} s" if status is None else f"exited with status {status}"
    return f"{command.argv[0]} {how}"


def reached_by(url: str) -> tuple[aiohttp.BaseConnector, str]:
    """Return a connector for an endpoint's `url`, and the URL to request, without a path."""
    parts = urlsplit(url)
    if parts.scheme == "http+unix":
        return aiohttp.UnixConnector(unquote(parts.netloc)), "http://localhost"
    return aiohttp.TCPConnector(), f"{parts.scheme}://{parts.netloc}"


def pids_with_words(*words: str) -> set[int]:
    """Return the processes of this machine whose command lines have these words one after the other."""
    wanted = f"\0{chr(0).join(words)}\0".encode()
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError), open(f"{entry.path}/cmdline", "rb") as line:  # noqa: PTH123  of many
                if wanted in line.read():
                    found.add(int(entry.name))
    return found


class OutputCapture:
    """Reads a pipe into `tail`. Without a transport, because some event loops close its descriptor a second time."""

    def __init__(self, stream: IO[bytes], tail: OutputTail) -> None:
        self._stream = stream
        self._tail = tail
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(stream.fileno(), False)
        self._loop.add_reader(stream.fileno(), self._read)

    async def close(self, within_s: float) -> None:
        """Wait until the pipe is closed, but not longer: another process may hold it."""
        await asyncio.wait([self._ended], timeout=within_s)
        self._end()

    def _read(self) -> None:
        try:
            data = os.read(self._stream.fileno(), _PIECE_BYTES)
        except BlockingIOError:
            return
        if data:
            self._tail.add(data)
        else:
            self._end()

    def _end(self) -> None:
        if not self._ended.done():
            self._loop.remove_reader(self._stream.fileno())
            self._stream.close()
            self._ended.set_result(None)


def capture_pipe(tail: OutputTail) -> tuple[OutputCapture, int]:
    """Return a capture, and the descriptor to write to, which the caller closes. Raises `OSError`."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    return OutputCapture(os.fdopen(reading, "rb", buffering=0), tail), writing


logger = logging.getLogger(__name__)


async def close_all(sandboxes: Iterable[RunningSandbox]) -> None:
    """Close sandboxes in parallel, each completely.

    Raises:
        SandboxError: some could not be freed; how many, and the first error.
    """
    outcomes = await asyncio.gather(*(sandbox.close() for sandbox in list(sandboxes)), return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    for error in errors:
        if not isinstance(error, Exception):
            raise error
    if errors:
        raise SandboxError(f"{len(errors)} of {len(outcomes)} sandboxes could not be freed: {errors[0]}") from errors[0]


async def close_after_failure(sandbox: RunningSandbox) -> None:
    """Close a sandbox whose failure is already reported; log an error of the closing."""
    try:
        await sandbox.close()
    except SandboxError as error:
        logger.warning("%s", error)
