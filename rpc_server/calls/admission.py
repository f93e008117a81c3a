"""How much is being done, whether more is taken, and when all is quiet."""

import asyncio
from types import TracebackType
from typing import Self

from protocol.errors import Overloaded

_RETRY_AFTER_S = 1.0


class AdmissionController:
    """Counts the examples of running calls against what the program runs at once and what may wait behind it."""

    def __init__(self, *, max_running: int, max_waiting: int) -> None:
        self._room = max_running + max_waiting
        self._examples = 0
        self.calls = 0
        self.draining = False
        self.changed = asyncio.Event()

    def admit(self, examples: int) -> "Admission":
        """Count a call of so many examples in.

        A call larger than all the room there is gets in when nothing else runs: it could not ever otherwise.

        Raises:
            Overloaded: no room now, or the server is shutting down.
        """
        if self.draining:
            raise Overloaded("shutting down", retry_after_s=_RETRY_AFTER_S)
        if self._examples and self._examples + examples > self._room:
            raise Overloaded(retry_after_s=_RETRY_AFTER_S)
        self._examples += examples
        self.calls += 1
        return Admission(self, examples)

    def release(self, examples: int) -> None:
        """Count examples out."""
        self._examples -= examples

    def end(self) -> None:
        """Count a call out."""
        self.calls -= 1
        self.changed.set()


class Admission:
    """One call's share of the load; given back example by example, and what is left at its end."""

    def __init__(self, controller: AdmissionController, examples: int) -> None:
        self._controller = controller
        self._examples = examples

    def example_finished(self) -> None:
        """One example of the call is finished."""
        if self._examples:
            self._examples -= 1
            self._controller.release(1)

    def close(self) -> None:
        """The call is over."""
        self._controller.release(self._examples)
        self._examples = 0
        self._controller.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
