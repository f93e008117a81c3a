"""Tells that the server cannot be reached: once per attempt, however many examples wait for it."""

from gepa_client.run.events import Emit, Unreachable
from gepa_client.window import ExampleDone


class Outage:
    """Emits an `unreachable` event when the attempts of any call get further than those of all before it."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._told = 0

    def lost(self, attempt: int, max_attempts: int) -> None:
        """A call is about to be tried again."""
        if attempt > self._told:
            self._told = attempt
            self._emit(Unreachable(attempt=attempt, max_attempts=max_attempts))

    def answered(self, _done: ExampleDone) -> None:
        """The server is there: another outage is told from its beginning."""
        self._told = 0
