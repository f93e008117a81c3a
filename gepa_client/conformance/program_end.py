"""Start a program over stdio, as the server does, and see whether it exits when it is asked to."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Sequence
from typing import Literal

FIRST_ANSWER_S = 30.0
DISCOVER = b'{"jsonrpc":"2.0","id":1,"method":"discover","params":{}}\n'
LONGEST_LINE = 64 * 2**20


async def exits(command: Sequence[str], how: Literal["input", "sigterm"], *, within_s: float) -> str:
    """Start `command`, wait for its answer of `discover`, close its input or send it SIGTERM; then kill what is left.

    Returns:
        What it does instead of exiting within `within_s` seconds; empty if it exits.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "GEPA_STDIO": "1"},
        start_new_session=True,
        limit=LONGEST_LINE,
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the process has no pipes")
    try:
        process.stdin.write(DISCOVER)
        async with asyncio.timeout(FIRST_ANSWER_S):
            while not _is_answer(line := await process.stdout.readline()):
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
            await asyncio.wait_for(process.wait(), within_s)
        except TimeoutError:
            return f"it still runs after {within_s:g} s"
        return ""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _is_answer(line: bytes) -> bool:
    """Whether the line is the answer, and not log text before it."""
    try:
        message = json.loads(line)
    except ValueError:
        return False
    return isinstance(message, dict) and message.get("id") == 1
