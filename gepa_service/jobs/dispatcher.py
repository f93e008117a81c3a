"""The dispatcher: has the engine start attempts at work in its fair order, and work that has lost its attempt again."""

import logging
import math
import threading
import time
from dataclasses import dataclass, field

from gepa_service.engines.engine import Engine, EngineUnavailable
from gepa_service.jobs.dispatcher_lease import DispatcherLease
from gepa_service.jobs.queue import Queue
from gepa_service.model.work import Work
from gepa_service.records import RecordError, RecordStore, changed

IDLE_S = 0.1
"""Seconds between two looks at the queue if nothing can be placed."""

AGREE_S = 1.0
"""Seconds between two comparisons of what runs by the records and by the engine."""

_log = logging.getLogger(__name__)


@dataclass
class Dispatcher:
    """Places work while it has the lease. Several processes may each run one."""

    records: RecordStore
    queue: Queue
    engine: Engine
    lease: DispatcherLease
    _placed: dict[tuple[str, int], Work] = field(default_factory=dict)

    def run(self, stop: threading.Event) -> None:
        """Place work until `stop` is set. `lease` and `engine` are open meanwhile."""
        failure, agreed = None, -math.inf
        while not stop.is_set():
            placed = False
            try:
                if self.lease.is_held:
                    if time.monotonic() - agreed >= AGREE_S:
                        self.agree()
                        agreed = time.monotonic()
                    placed = self.place()
                failure = None
            except (RecordError, EngineUnavailable) as error:
                if str(error) != failure:
                    failure = str(error)
                    _log.warning("no work can be placed: %s", failure)
            if not placed:
                stop.wait(IDLE_S)

    def agree(self) -> None:
        """Have records and engine agree on what runs. Raises `RecordsUnavailable`, `EngineUnavailable`."""
        running = list(self.records.every(Work, None, {"status": "running"}))
        present = {(work.id, work.attempts) for work in running}
        for key, work in tuple(self._placed.items()):
            if key not in present:
                self.engine.stop(work)  # of work that ended, which it may not have noticed
                del self._placed[key]
        ended = self.engine.ended(running)
        if ended:
            # while this machine slept, another dispatcher may have taken the lease, whose attempts this engine lacks
            self.lease.renew()
        for work in ended if self.lease.is_held else ():
            self.queue.put_back(work, "its attempt ended before the work was over", setbacks=work.setbacks + 1)

    def place(self) -> bool:
        """Place the next work; return whether there was one.

        Raises:
            RecordError: the database cannot be used now. EngineUnavailable: nor can the engine.
        """
        work = self.queue.take()
        if work is None:
            return False
        try:
            call = self.engine.start(work)
        except EngineUnavailable:
            self.queue.put_back(work, "it waits: the engine cannot be reached", setbacks=work.setbacks)
            raise
        placed = self._placed[work.id, work.attempts] = work.model_copy(update={"call": call})
        if call is not None:
            changed(
                self.records,
                placed,
                lambda found: found if found.attempts != work.attempts else found.model_copy(update={"call": call}),
            )
        return True
