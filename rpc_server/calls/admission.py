"""Admission control: the running and waiting examples, whether more are accepted, and when the server is idle."""

import asyncio
from types import TracebackType
from typing import Self

from protocol.errors import Overloaded

_RETRY_AFTER_S = 1.0


class AdmissionController:
    """Counts the examples of running calls against what may run and wait at once."""

    def __init__(self, *, max_running: int, max_waiting: int) -> None:
        self._room = max_running + max_waiting
        self._examples = 0
        self.calls = 0
        self.draining = False
        self.changed = asyncio.Event()

    def admit(self, examples: int) -> "Admission":
        """Admit a call of so many examples.

        A call larger than all the room is admitted when nothing else runs, as it could never start otherwise.

        Raises:
            Overloaded: there is no room, or the server is shutting down.
        """
        if self.draining:
            raise Overloaded("shutting down", retry_after_s=_RETRY_AFTER_S)
        if self._examples and self._examples + examples > self._room:
            raise Overloaded(retry_after_s=_RETRY_AFTER_S)
        self._examples += examples
        self.calls += 1
        return Admission(self, examples)

    def release(self, examples: int) -> None:
        """Release examples."""
        self._examples -= examples

    def end(self) -> None:
        """Release a call."""
        self.calls -= 1
        self.changed.set()


class Admission:
    """One call's share of the load, released example by example, the rest at its end."""

    def __init__(self, controller: AdmissionController, examples: int) -> None:
        self._controller = controller
        self._examples = examples

    def example_finished(self) -> None:
        """Release one example of the call."""
        if self._examples:
            self._examples -= 1
            self._controller.release(1)

    def close(self) -> None:
        """Release the call."""
        self._controller.release(self._examples)
        self._examples = 0
        self._controller.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
