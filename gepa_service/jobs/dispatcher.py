"""The dispatcher: has the engine start attempts at work in a fair order, and work that has lost its attempt again.

Tenants take turns, so that one who submits much does not hold up another's first. In a lane the tenant with the least
under way comes first, then the one that was served longest ago; of a tenant, its oldest work.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gepa_client.settings.run_config import RunConfig
from gepa_service.engines.engine import Engine, EngineUnavailable
from gepa_service.jobs.dispatcher_lease import DispatcherLease
from gepa_service.jobs.month_spending import NOTHING_LEFT, has_spent_all, quotas_of
from gepa_service.model.work import LANES, TURN, Turn, What, Work
from gepa_service.records import RecordChanged, RecordError, RecordStore, changed, now, stored

NEVER = datetime.min.replace(tzinfo=UTC)

LOOKED_AT = 50
"""Pending works of a tenant and kind that are considered: those that wait after a setback are passed over."""

IDLE_S = 0.1
"""Seconds between two looks at the queue if nothing can be placed."""

AGREE_S = 1.0
"""Seconds between two comparisons of what runs by the records and by the engine."""

_log = logging.getLogger(__name__)


@dataclass
class Queue:
    """The work of all tenants. Safe to use from several processes, each by one thread.

    `at_once`: attempts of all tenants at the same time, in each lane. All methods raise `RecordsUnavailable`.
    """

    records: RecordStore
    at_once: float = math.inf

    def take(self) -> Work | None:
        """Return the work that is next, as running in its next attempt; None if there is none that may run now."""
        for lane in LANES:
            for tenant in self._tenants(lane):
                work = self._oldest(tenant, lane)
                if work is not None and has_spent_all(self.records, tenant):
                    self._note(work, NOTHING_LEFT)
                elif work is not None and (begun := self._begun(work)) is not None:
                    stored(self.records, Turn(tenant=tenant, id=TURN), lambda found: found.model_copy())
                    return begun
        return None

    def put_back(self, work: Work, reason: str, *, setbacks: int) -> None:
        """Have running work wait again, unless its record was written since it was read."""
        changes = {"status": "pending", "reason": reason, "setbacks": setbacks}
        with contextlib.suppress(RecordChanged):
            self.records.replace(work.model_copy(update=changes))

    def _tenants(self, lane: Sequence[What]) -> list[str]:
        """Return the tenants that have work waiting in a lane and may run more there, in the order of their turns."""
        waiting = self.records.tenants_with(Work, {"what": lane, "status": "pending"})
        running = self.records.tenants_with(Work, {"what": lane, "status": "running"})
        if sum(running.values()) >= self.at_once:
            return []
        free = [each for each in waiting if running.get(each, 0) < quotas_of(self.records, each).jobs_at_once]
        return sorted(free, key=lambda each: (running.get(each, 0), self._last_turn(each), each))

    def _oldest(self, tenant: str, lane: Sequence[What]) -> Work | None:
        """Return the tenant's oldest work that may run now and for whose sandboxes there is room."""
        quota = quotas_of(self.records, tenant).sandboxes
        used = sum(sandboxes_of(work) for work in self.records.every(Work, tenant, {"status": "running"}))
        for work in self._waiting(tenant, lane):
            due = work.not_before is None or work.not_before <= now()
            if due and (used == 0 or used + sandboxes_of(work) <= quota):
                return work
        return None

    def _waiting(self, tenant: str, lane: Sequence[What]) -> list[Work]:
        where = [{"what": what, "status": "pending"} for what in lane]
        pages = [self.records.page(Work, tenant, each, limit=LOOKED_AT) for each in where]
        return sorted((work for page in pages for work in page), key=lambda work: work.created)

    def _note(self, work: Work, reason: str) -> None:
        """State in the record of pending work why it waits."""
        if work.reason != reason:
            with contextlib.suppress(RecordChanged):
                self.records.replace(work.model_copy(update={"reason": reason}))

    def _begun(self, work: Work) -> Work | None:
        """Begin the next attempt at work as it was seen; None if another process wrote it since."""
        changes: dict[str, Any] = {
            "status": "running",
            "attempts": work.attempts + 1,
            "call": None,
            "started": work.started or now(),
            "not_before": None,
            "reason": None,
        }
        if work.what != "optimize":  # it counts what its process has spent
            changes |= {"counted_usd": 0.0, "counted_unpriced": 0}
        try:
            return self.records.replace(work.model_copy(update=changes))
        except RecordChanged:
            return None

    def _last_turn(self, tenant: str) -> datetime:
        found = self.records.get(Turn, tenant, TURN)
        return NEVER if found is None else found.updated


def sandboxes_of(work: Work) -> int:
    """Return how many sandboxes a work asks for."""
    default: int = RunConfig.model_fields["sandboxes"].default
    return int(work.settings.get("sandboxes") or default)


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
