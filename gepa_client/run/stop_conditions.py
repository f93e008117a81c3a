"""What ends or pauses a run besides GEPA's own stoppers: money, time, files, failures. A replay checks none of them."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from gepa_client.errors import Interrupted, plain_error
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.batch_evaluator import ExampleDone
from gepa_client.journal.journal import Journal
from gepa_client.run.gateway_record import GatewayRecord
from gepa_client.run.run_counters import RunCounters
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.run_settings import Evolve
from gepa_client.transport.event_loop import CancelToken

FAILURE_WINDOW = 50
"""The number of latest examples that `failure_stop` considers."""

FAILURE_SHARE = 0.5
"""The share of them that may fail by default."""

QUIET_S = 5.0
"""Seconds without the end of a model call, after which the calls left are held."""

LONGEST_WAIT_S = 60.0
"""Seconds after which calls are abandoned although some keep ending."""

POLL_S = 0.2


@dataclass
class BetweenExamples:
    """Stops a run as soon as its money or its time is spent: examples in flight end, none starts.

    It checks once the replay has ended, however much was spent before. `on_spent`: called when the money is spent, as
    examples in flight may wait for more of it.
    """

    config: RunConfig
    journal: Journal
    counters: RunCounters
    on_spent: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._capped: str | None = None
        self._live = self._watching = False
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        self.journal.on_first_write(self._begin)
        return self

    def capped(self, reason: str) -> None:
        """Take the gateway's report that the money is spent; safe to call from any thread."""
        self._capped = reason
        if self._live:
            self._check_spending()

    def set_limits(self, config: RunConfig) -> None:
        """Apply other limits from now on."""
        self.config = config
        if self._live:
            self._apply()

    def _begin(self) -> None:
        self._live = True
        self._apply()

    def _apply(self) -> None:
        if self.config.max_cost_usd is not None and not self._watching:
            self._watching = True
            self.journal.spending.watch(self._check_spending)
        self._check_spending()
        if self._timer is not None:
            self._timer.cancel()
        if (limit_s := self.config.max_seconds) is not None:
            reason = Interrupted("completed", f"max_seconds of {limit_s:g} is reached")
            left = limit_s - self.counters.active_seconds
            if left <= 0:
                self.journal.cancel_token.cancel(reason)
                return
            self._timer = threading.Timer(left, self.journal.cancel_token.cancel, [reason])
            self._timer.daemon = True
            self._timer.start()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check_spending(self) -> None:
        spent, limit, reason = self.journal.spending.cost_usd, self.config.max_cost_usd, self._capped
        if limit is not None and spent >= limit:
            reason = f"max_cost_usd of ${limit:g} is reached: ${spent:.4f} spent"
        if reason is not None:
            self.journal.cancel_token.cancel(Interrupted("completed", reason))
            self.on_spent()


class FailureStop:
    """Pauses a run whose program fails on more than a share of the last examples, with the first of those failures.

    `share`: None for the default, which depends on what evolves, as a code mutation may fix the program.
    """

    def __init__(self, share: float | None, cancel_token: CancelToken) -> None:
        self._share = FAILURE_SHARE if share is None else share
        self._is_given = share is not None
        self._cancel_token = cancel_token
        self._last: deque[dict[str, Any] | None] = deque(maxlen=FAILURE_WINDOW)

    def begin(self, evolve: Evolve) -> None:
        """Set what evolves, before the first example."""
        if evolve != "prompts" and not self._is_given:
            self._share = 1.0

    def done(self, example: ExampleDone) -> None:
        """Count the result of an example."""
        failed = example.status in ("program_error", "timeout")
        failure = {"id": example.id, "status": example.status, **(example.error or {})}
        self._last.append(failure if failed else None)
        failures = [failure for failure in self._last if failure is not None]
        if len(self._last) == FAILURE_WINDOW and len(failures) > self._share * FAILURE_WINDOW:
            self._cancel_token.cancel(
                Interrupted(
                    "paused",
                    f"{len(failures)} of the last {FAILURE_WINDOW} examples failed in the program, more than "
                    f"`failure_stop` {self._share:g} allows (1: the run continues regardless); the first: "
                    f"{plain_error(failures[0])}",
                )
            )


@contextmanager
def held_calls_abandoned(adapter: RemoteAdapter, gateway: GatewayRecord) -> Iterator[Callable[[], None]]:
    """Yield a function to call, from any thread, once the money is spent.

    From then on, examples that need no further model can complete, and the rest are abandoned. A program whose call is
    held would otherwise fail its example by time-out, and that failure would get a score.
    """
    spent, over = threading.Event(), threading.Event()

    def watch() -> None:
        spent.wait()
        waited_s = 0.0
        while min(gateway.quiet_for(), waited_s) < QUIET_S and waited_s < LONGEST_WAIT_S:
            if over.wait(POLL_S):
                return
            waited_s += POLL_S
        if not over.is_set():
            adapter.abandon("the money is spent, and what still needs a model never ends")

    thread = threading.Thread(target=watch, name="abandoning", daemon=True)
    thread.start()
    try:
        yield spent.set
    finally:
        over.set()
        spent.set()
        thread.join()
