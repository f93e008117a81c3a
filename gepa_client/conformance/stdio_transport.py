"""Speak with a program over its standard input and output, one message a line, as `evolverpc serve --command` does.

A program behind `evolverpc serve` gets one example in a request, no more requests about examples at once than its
`max_concurrency`, and need not state what that server knows: both are so here too.
"""

import asyncio
import contextlib
import json
import os
import shlex
import signal
import time
from collections.abc import AsyncIterator
from typing import Any, Literal

from gepa_client.conformance.case_language import MAX_INLINE_BYTES, as_json, in_file
from gepa_client.conformance.raw_transport import MAX_ANSWER_BYTES, NoAnswer, NotConnected, RawAnswer, RawRequest
from gepa_client.errors import Refused
from protocol.over_stdio import filled_discovery, filled_result

EXIT_S = 5.0
"""Seconds in which a program exits when its input ends."""

FIRST_ANSWER_S = 30.0
FIRST_NUMBER = 1000
"""Of a request: no number that an example of the cases prints as the id of an answer."""

LOG_S = 1.0
"""Seconds for the end of stderr, which a process that the program has started may hold open."""

LOG_BYTES = 2000
LINE_SHOWN = 120
ABOUT_EXAMPLES = ("evaluate", "score")
LIMITS = {"max_batch_size": 1000, "max_request_bytes": 64 * 2**20}

Message = dict[str, Any]


@contextlib.asynccontextmanager
async def stdio_transport(command: str) -> "AsyncIterator[StdioTransport]":
    """Start the program for the block; at the end its input is closed, and it is killed if it does not exit.

    Raises:
        Refused: the command cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "GEPA_STDIO": "1"},
            start_new_session=True,
            limit=MAX_ANSWER_BYTES,
        )
    except (OSError, ValueError, TypeError) as error:
        raise Refused(f"cannot start {command!r}: {error}") from error
    transport = StdioTransport(command, process)
    log = asyncio.create_task(transport.read_log())
    answers = asyncio.create_task(transport.read_answers(log))
    try:
        yield transport
    finally:
        transport.end_input()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), EXIT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.gather(process.wait(), log, answers)


class StdioTransport:
    """One process of the program, while it runs. `address`: its command line."""

    over: Literal["stdio"] = "stdio"
    token = None

    def __init__(self, command: str, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise RuntimeError("the process has no pipes")
        self.address = command
        self._process = process
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._pending: dict[int, asyncio.Future[Message]] = {}
        self._number = FIRST_NUMBER
        self._log = b""
        self._text = ""
        self._whole_batches = False
        self._room = asyncio.Semaphore(1)

    def take_limits(self, limits: Message) -> None:
        """Take how many examples the program has at once, and whether it wants whole batches, from its `discover`."""
        self._room = asyncio.Semaphore(limits["max_concurrency"])
        self._whole_batches = bool(limits.get("whole_batches"))

    async def send(self, request: RawRequest, *, timeout_s: float) -> RawAnswer:
        """Send one message.

        Raises:
            NoAnswer: no answer within `timeout_s`, or the program ended. NotConnected: it had ended before.
        """
        message: Message = json.loads(request.body)
        started = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._answer(message)
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {timeout_s:g} s{self._received()}") from error
        body = json.dumps(answer).encode()
        return RawAnswer(status=200, headers={}, body=body, elapsed_s=time.monotonic() - started)

    async def end_another(self, how: Literal["input", "sigterm"], *, within_s: float) -> None:
        """Start the program once more, have `discover` answered, end it so, and return when it has exited.

        Raises:
            NoAnswer: it did not answer, or did not exit within `within_s`.
        """
        async with stdio_transport(self.address) as other:
            await other.send(RawRequest(b'{"jsonrpc": "2.0", "id": 1, "method": "discover"}'), timeout_s=FIRST_ANSWER_S)
            if how == "input":
                other.end_input()
            else:
                other._process.terminate()
            try:
                await asyncio.wait_for(other._process.wait(), within_s)
            except TimeoutError as error:
                raise NoAnswer(f"no exit within {within_s:g} s") from error

    def shell_line(self, request: RawRequest) -> str:
        """Return the request as a line to paste into a shell: a pipe into the program."""
        messages = enumerate(self.messages(json.loads(request.body)), 1)
        lines = [as_json({**message, "id": number}) for number, message in messages]
        if sum(map(len, lines)) > MAX_INLINE_BYTES:
            newline = b"\n"
            source = f"cat {in_file(newline.join([*lines, b'']))}"
        else:
            source = f"printf '%s\\n' {' '.join(shlex.quote(line.decode()) for line in lines)}"
        return f"{{ {source}; sleep 2; }} | {self.address}"

    def messages(self, message: Message) -> list[Message]:
        """Return the messages that are sent for one: of one about several examples, a message for each example."""
        params = message.get("params") or {}
        columns = [name for name in ("batch", "results") if name in params]
        if (
            self._whole_batches
            or "items" in params
            or message.get("method") not in ABOUT_EXAMPLES
            or not any(params[name] for name in columns)
        ):
            return [message]
        rows = zip(*(params[name] for name in columns), strict=True)
        singles = [dict(zip(columns, ([one] for one in row), strict=True)) for row in rows]
        return [{**message, "params": {**params, **single}} for single in singles]

    def end_input(self) -> None:
        """Close the program's standard input, which asks it to exit."""
        self._stdin.close()

    async def read_answers(self, log: "asyncio.Task[None]") -> None:
        """Give every request its answer, until the program ends; `log` reads what it wrote before."""
        try:
            async for line in self._stdout:
                self._take(line)
        except ValueError:  # longer than anything that is read
            self._text = f"(a line of more than {MAX_ANSWER_BYTES} bytes)"
            self._process.kill()
        await self._process.wait()
        await asyncio.wait({log}, timeout=LOG_S)
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_exception(NoAnswer(self._end()))

    def _take(self, line: bytes) -> None:
        answer = _parsed(line)
        number = answer.get("id")
        waiting = self._pending.get(number) if type(number) is int and "method" not in answer else None
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
        elif line.strip():
            self._text = line.decode("utf-8", "replace").strip()

    async def read_log(self) -> None:
        """Read what the program writes to stderr, and keep the end of it."""
        while chunk := await self._stderr.read(65536):
            self._log = (self._log + chunk)[-LOG_BYTES:]

    async def _answer(self, message: Message) -> Message:
        if message.get("method") not in ABOUT_EXAMPLES:
            answer = await self._exchange(message)
            if message.get("method") == "discover" and "result" in answer:
                answer = {**answer, "result": filled_discovery(answer["result"], LIMITS)}
            return answer
        answers = await asyncio.gather(*map(self._about_examples, self.messages(message)))
        if len(answers) == 1:
            return answers[0]
        error = next((answer for answer in answers if _results(answer) is None), None)
        results = [result for answer in answers for result in _results(answer) or ()]
        return error or {"jsonrpc": "2.0", "id": message["id"], "result": {"results": results}}

    async def _about_examples(self, message: Message) -> Message:
        async with self._room:
            started = time.monotonic()
            answer = await self._exchange(message)
            for result in _results(answer) or ():
                if isinstance(result, dict):
                    result |= filled_result(result, time.monotonic() - started)
            return answer

    async def _exchange(self, message: Message) -> Message:
        """Send it under a number of this process's own; the answer has the id of the message again."""
        if self._process.returncode is not None:
            raise NotConnected(self._end())
        self._number += 1
        number = self._number
        answer = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            self._stdin.write(as_json({**message, "id": number}) + b"\n")
            with contextlib.suppress(ConnectionError):
                await self._stdin.drain()
            return {**await answer, "id": message["id"]}
        finally:
            del self._pending[number]

    def _received(self) -> str:
        """Return what came in place of an answer."""
        if self._text:
            return f"; the last line that is no answer to a request: {self._text[:LINE_SHOWN]!r}"
        return "; does the program read stdin, and flush each line that it writes?"

    def _end(self) -> str:
        status = self._process.returncode
        how = f"was killed by signal {-status}" if status is not None and status < 0 else f"exited with status {status}"
        written = self._log.decode("utf-8", "replace").strip() or self._text[:LINE_SHOWN]
        return f"the program {how}{f'; it wrote: {written}' if written else ''}"


def _parsed(line: bytes) -> Message:
    """Return the message in a line; an empty one if it is text that the program printed."""
    try:
        message = json.loads(line.decode())
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) and "jsonrpc" in message else {}


def _results(answer: Message) -> list[Any] | None:
    result = answer.get("result")
    results = result.get("results") if isinstance(result, dict) else None
    return results if isinstance(results, list) else None
