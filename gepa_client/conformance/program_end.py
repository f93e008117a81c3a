"""Start a program over stdio, as the server does, and see whether it exits when it is asked to."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Literal

FIRST_ANSWER_S = 30.0
DISCOVER = b'{"jsonrpc":"2.0","id":1,"method":"discover","params":{}}\n'
LONGEST_LINE = 64 * 2**20
CHUNK = 2**20
POLL_S = 0.02


async def exits(command: Sequence[str], how: Literal["input", "sigterm"], *, within_s: float) -> str:
    """Start `command`, wait for its answer of `discover`, close its input or send it SIGTERM; then kill what is left.

    Returns:
        What it does instead of exiting within `within_s` seconds; empty if it exits.
    """
    process = subprocess.Popen(  # noqa: ASYNC220, S603  # asyncio's own waits until its output is closed too
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "GEPA_STDIO": "1"},
        start_new_session=True,
        bufsize=0,
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the process has no pipes")
    written = asyncio.StreamReader(LONGEST_LINE)
    reading, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(written), process.stdout
    )
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(DISCOVER)
        async with asyncio.timeout(FIRST_ANSWER_S):
            while not _is_answer(line := await _line(written)):
                if not line:
                    return "it ended before it answered `discover`"
    except TimeoutError:
        return f"no answer of `discover` within {FIRST_ANSWER_S:g} s"
    else:
        if how == "input":
            process.stdin.close()
        else:
            process.terminate()
        try:
            async with asyncio.timeout(within_s):
                await _exit(process, written)
        except TimeoutError:
            return f"it still runs after {within_s:g} s"
        return ""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdin.close()
        reading.close()
        process.wait()


async def _line(written: asyncio.StreamReader) -> bytes:
    """Return the next line; of one that is too long for an answer, a newline."""
    try:
        return await written.readline()
    except ValueError:
        return b"\n"


async def _exit(process: subprocess.Popen[bytes], written: asyncio.StreamReader) -> None:
    """Wait for the exit of the process itself: processes that it started may hold its output open.

    What it writes until then is read, so that it is not held up.
    """
    reading = asyncio.create_task(_discard(written))
    try:
        while process.poll() is None:  # noqa: ASYNC110  # nothing announces it on every system
            await asyncio.sleep(POLL_S)
    finally:
        reading.cancel()


async def _discard(written: asyncio.StreamReader) -> None:
    data = b"any"
    while data:
        data = await written.read(CHUNK)


def _is_answer(line: bytes) -> bool:
    """Whether the line is the answer, and not log text before it."""
    try:
        message = json.loads(line)
    except ValueError:
        return False
    return isinstance(message, dict) and message.get("id") == 1
