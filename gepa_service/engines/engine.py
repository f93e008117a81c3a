"""What the dispatcher needs of the place where attempts run, and the engine of one machine."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from gepa_service.model.work import Work

_log = logging.getLogger(__name__)


class EngineUnavailable(Exception):
    """The engine cannot be reached now; trying later can help."""


class EngineRefused(EngineUnavailable):
    """The engine cannot be used as it is configured; the text has the reason, and what to do."""


class Engine(Protocol):
    """Runs attempts. One is known by its work's id and `attempts`, also to a dispatcher that has not started it.

    It may be late, or wrong, about an attempt: each write compares `attempts`, so that one that is thought dead writes
    nothing once the next one is placed. All methods return within seconds, and may raise `EngineUnavailable`.

    Used in a `with` block, by one thread.
    """

    @property
    def nodes(self) -> int:
        """The number of its nodes, as it last saw."""

    def __enter__(self) -> Self:
        """Open it. Raises `EngineRefused`."""

    def __exit__(self, *_: object) -> None:
        """Close it."""

    def start(self, work: Work) -> str | None:
        """Start the attempt `work.attempts`; return what its record keeps as `call`, if the engine needs it."""

    def stop(self, work: Work) -> None:
        """Have an attempt stop and hand its work back, if it still runs."""

    def ended(self, running: Sequence[Work]) -> list[Work]:
        """Return those of these attempts that do not run: they ended in any way, or are not known."""


@dataclass
class LocalEngine:
    """Makes each attempt in a thread of this process, which starts a process for the work.

    Its attempts end with this process, and are stopped at the end of the `with` block.

    `run`: makes an attempt, until the event is set.
    """

    run: Callable[[Work, threading.Event], None]
    nodes: int = field(default=1, init=False)
    _attempts: dict[tuple[str, int], tuple[Work, threading.Event, threading.Thread]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for work, *_rest in self._attempts.values():
            self.stop(work)
        for *_rest, thread in self._attempts.values():
            thread.join()

    def start(self, work: Work) -> None:
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(work, stop), name=f"{work.id}, attempt {work.attempts}")
        self._attempts[work.id, work.attempts] = work, stop, thread
        thread.start()

    def stop(self, work: Work) -> None:
        if (work.id, work.attempts) in self._attempts:
            self._attempts[work.id, work.attempts][1].set()

    def ended(self, running: Sequence[Work]) -> list[Work]:
        self._attempts = {key: each for key, each in self._attempts.items() if each[2].is_alive()}
        return [work for work in running if (work.id, work.attempts) not in self._attempts]

    def _run(self, work: Work, stop: threading.Event) -> None:
        try:
            self.run(work, stop)
        except Exception:  # noqa: BLE001  the dispatcher places the next attempt; the others continue
            _log.exception("attempt %d at %s has ended", work.attempts, work.id)
