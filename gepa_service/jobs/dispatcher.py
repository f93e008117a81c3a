"""The dispatcher: has the engine start attempts at work in its fair order, and work that has lost its attempt again."""

import logging
import threading
from dataclasses import dataclass, field

from gepa_client.errors import JournalError
from gepa_service.engines.engine import Engine, EngineUnavailable
from gepa_service.jobs.dispatcher_lease import DispatcherLease
from gepa_service.jobs.queue import Queue
from gepa_service.model.work import Work
from gepa_service.records.every import every
from gepa_service.records.store import RecordError, RecordStore

IDLE_S = 0.1
"""Seconds between two looks at the records and at the engine."""

_log = logging.getLogger(__name__)


@dataclass
class Dispatcher:
    """Places work while it has the lease. Several processes may each run one.

    `is_busy`: whether there was work that runs, or could begin, when it looked last.
    """

    records: RecordStore
    queue: Queue
    engine: Engine
    lease: DispatcherLease
    is_busy: bool = False
    _placed: dict[tuple[str, int], Work] = field(default_factory=dict)

    def run(self, stop: threading.Event) -> None:
        """Place work until `stop` is set. `lease` and `engine` are open meanwhile."""
        failure: str | None = None
        while not stop.is_set():
            placed = False
            try:
                placed = self.lease.is_held and self.turn()
                failure = None
            except (RecordError, JournalError, EngineUnavailable) as error:
                if str(error) != failure:
                    failure = str(error)
                    _log.warning("no work can be placed: %s", failure)
            if not placed:
                stop.wait(IDLE_S)

    def turn(self) -> bool:
        """Have records and engine agree on what runs, and place the next work; return whether there was one.

        Raises:
            RecordError, JournalError: a database cannot be used now. EngineUnavailable: nor can the engine.
        """
        running = list(every(self.records, Work, None, {"status": "running"}))
        present = {(work.id, work.attempts) for work in running}
        for key, work in tuple(self._placed.items()):
            if key not in present:
                self.engine.stop(work)  # of work that ended, which it may not have noticed
                del self._placed[key]
        for work in self.engine.ended(running):
            self.queue.put_back(work, "its attempt ended before the work was over", setbacks=work.setbacks + 1)
        lanes = self.engine.capacity()
        next_ = self.queue.take(lanes) if lanes else None
        self.is_busy = bool(running) or next_ is not None
        if next_ is None:
            return False
        try:
            self.engine.start(next_)
        except EngineUnavailable:
            self.queue.put_back(next_, "it waits: the engine cannot be reached", setbacks=next_.setbacks)
            raise
        self._placed[next_.id, next_.attempts] = next_
        return True
