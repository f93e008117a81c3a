"""How long a process that can be cancelled in place leaves small requests unanswered while it works."""

import asyncio
from typing import Any

from rpc_server.program.process import ProgramProcess

CALL_ID = "heartbeat"
"""The `call_id` of no call: a `cancel` of it is answered at once and changes nothing."""

_SLOW_S = 0.02
_BEATS_PER_LIMIT = 100
_SHORTEST_S, _LONGEST_S = 0.02, 1.0


class Heartbeat:
    """Sends a `cancel` of no call every hundredth of `limit_s`, between 0.02 s and 1 s, and measures the answers.

    If the next answer is over 0.02 s late, all time since the one before counts as held, so that `held_s` errs towards
    too much. It includes time in which this server or the whole machine was too busy to ask or to answer.
    """

    def __init__(self, process: ProgramProcess, limit_s: float) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._every_s = min(max(limit_s / _BEATS_PER_LIMIT, _SHORTEST_S), _LONGEST_S)
        self._timer: asyncio.TimerHandle | None = None
        self._asked = False
        self._seen = 0.0
        self._held_s = 0.0

    @property
    def held_s(self) -> float:
        """Seconds in which the process did not answer in time; compare two readings without a `stop` in between."""
        since = self._loop.time() - self._seen
        return self._held_s + (since if since > self._every_s + _SLOW_S else 0.0)

    def start(self) -> None:
        """Begin, or go on; does nothing while it runs."""
        if self._timer is not None:
            return
        self._seen = self._loop.time()
        self._timer = self._loop.call_later(self._every_s, self._beat)

    def stop(self) -> None:
        """Send no more until `start`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        self._timer = self._loop.call_later(self._every_s, self._beat)
        if not self._asked:
            self._asked = True
            self._process.request("cancel", {"call_id": CALL_ID}, self._answered)

    def _answered(self, _: dict[str, Any]) -> None:
        self._held_s = self.held_s
        self._seen = self._loop.time()
        self._asked = False
