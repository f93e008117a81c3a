"""Why a command does not answer: it wrote nothing, a part of a line, or lines that answer no request."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from evolverpc_common.display_text import counted, plain
from rpc_server.program.process_output import OpenRequest
from rpc_server.program.stdio import LineSplitter, fault_of

SILENCE_S = 3.0
"""Seconds without an answer after which the reason is reported."""

_MOST_SHOWN = 120
"""Characters of what was written instead."""


class AnswerWatch:
    """What a process wrote in place of the answers to its open requests, `due` by their numbers.

    `report` gets the explanation when nothing was answered for `SILENCE_S`: in any case until the first answer, later
    if the process wrote something else. Without it nothing is explained. `lines`: the output of the process.
    """

    def __init__(
        self, lines: LineSplitter, due: Mapping[int, OpenRequest], report: Callable[[str], None] | None
    ) -> None:
        self._lines = lines
        self._due = due
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._answers = 0
        self._stray = ""
        self._status: int | None = None
        self._ended = False

    def sent(self) -> None:
        """Note that a request was sent."""
        if self._report is not None and self._timer is None:
            self._timer = self._loop.call_later(SILENCE_S, self._look, self._answers)

    def answered(self) -> None:
        """Note that a request was answered."""
        self._answers += 1
        if not self._due:
            self._stray = ""

    def strayed(self, line: bytes, message: dict[str, Any] | None) -> None:
        """Note a line that answers no open request, unless it is log text; `message`: what was read of it."""
        is_log = message is None and self._answers and not line.lstrip().startswith((b"{", b"["))
        if self._report is not None and self._due and line.strip() and not is_log:
            self._stray = self._described(line, message)

    def end(self, status: int | None) -> None:
        """Note that the process has ended, with this exit status."""
        self._status = status
        self._ended = True

    def explain(self) -> str:
        """Return what came in place of the oldest answer that is due, and what to do; empty if nothing explains it."""
        if self._report is None or not self._due:
            return ""
        oldest = next(iter(self._due.values()))
        instead, sent = self._stray, f"sent {oldest.method}; received"
        if begun := bytes(self._lines.begun):
            instead = f"{counted(len(begun), 'byte')} without a newline at the end ({_shown(begun)})"
            instead = f"{instead}: end each message with one, and flush it"
        if instead:
            return f"{sent} {'' if self._ended else 'no answer, but '}{instead}"
        if self._ended:
            return "it must read requests until its input ends" if self._status == 0 else ""
        waited = f"for {round(self._loop.time() - oldest.sent, 1):g} s"
        return "" if self._answers else f"{sent} nothing {waited}: does the program read stdin and flush each line?"

    def _look(self, answers: int) -> None:
        """Report why nothing was answered since there were so many answers; look again while requests are open."""
        self._timer = None
        if self._ended or not self._due:
            return
        explanation = self.explain() if answers == self._answers else ""
        if self._report is not None and explanation:
            self._report(explanation)
        self.sent()

    def _described(self, line: bytes, message: dict[str, Any] | None) -> str:
        shown = _shown(line)
        if message is None:
            what = f"a line that is no JSON-RPC message ({shown}; {fault_of(line)})"
            return f"{what}: write one message a line; log text belongs on stderr"
        if "method" in message:
            return f"a request ({shown}): answer with `id` and `result` instead of repeating what is read"
        return f"a message whose id is that of no open request ({shown}): repeat the number that the request has"


def _shown(line: bytes) -> str:
    return f"`{plain(line[: 4 * _MOST_SHOWN].decode('utf-8', 'replace'), limit=_MOST_SHOWN)}`"
