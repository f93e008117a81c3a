"""The lease of the dispatcher: one process has it, and another takes it over, without comparing two clocks."""

import contextlib
import logging
import math
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Self

from evolverpc_common.files import lock_if_free, replace_file
from gepa_service.model.tenant import TENANTS
from gepa_service.records import Record, RecordChanged, RecordError, RecordExists, RecordStore

LEASE_S = 5.0
"""Seconds without a change of the record after which another process may take the lease."""

RENEW_S = 1.0
ID = "dispatcher"
_log = logging.getLogger(__name__)


class LeaseRecord(Record):
    """Which process dispatches work, None for none. Each renewal writes it, so that its `version` rises.

    `warm`: how many sandboxes of that process wait for a work. `nodes`: how many nodes its engine has.
    """

    kind: ClassVar[str] = "lease"

    holder: str | None
    warm: int = 0
    nodes: int = 0


class DispatcherLease:
    """Held, or awaited, while its `with` block runs.

    `holder`: a name that no other living process has. `clock`: monotonic, of this process.
    `figures`: returns `warm` and `nodes` of its record.
    """

    def __init__(
        self,
        records: RecordStore,
        holder: str,
        clock: Callable[[], float] = time.monotonic,
        figures: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._records, self._holder, self._clock = records, holder, clock
        self._figures = figures
        self._renewed = -math.inf
        self._seen: tuple[int, float] | None = None
        """The version that another holder wrote last, and since when it is known."""
        self._one_at_a_time = threading.Lock()
        self._closing = threading.Event()
        self._renewing = threading.Thread(target=self._keep, name="lease of the dispatcher")

    def __enter__(self) -> Self:
        self._renewing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._renewing.join()
        with contextlib.suppress(RecordError):  # it ends by itself
            found = self._records.get(LeaseRecord, TENANTS, ID)
            if found is not None and found.holder == self._holder:
                self._records.replace(found.model_copy(update={"holder": None, "warm": 0, "nodes": 0}))

    @property
    def is_held(self) -> bool:
        """Whether no other process can have taken it yet."""
        return self._clock() - self._renewed < LEASE_S

    def renew(self) -> None:
        """Renew it; take it if it is free, or was not renewed for the lease. Raises `RecordsUnavailable`."""
        with self._one_at_a_time:
            moment = self._clock()
            try:
                found = self._records.get(LeaseRecord, TENANTS, ID)
                if found is None:
                    self._records.insert(LeaseRecord(tenant=TENANTS, id=ID, holder=self._holder))
                elif found.holder in (None, self._holder) or self._is_left(found, moment):
                    self._records.replace(found.model_copy(update={"holder": self._holder, **self._figures()}))
                else:
                    moment = -math.inf  # another process has it
                self._renewed = moment
            except (RecordChanged, RecordExists):
                self._renewed = -math.inf
            except RecordError:
                self._seen = None  # its holder could not renew it either
                raise

    def _is_left(self, found: LeaseRecord, moment: float) -> bool:
        if self._seen is None or self._seen[0] != found.version:
            self._seen = found.version, moment
        return moment - self._seen[1] >= LEASE_S

    def _keep(self) -> None:
        while not self._closing.is_set():
            try:
                self.renew()
            except RecordError as error:
                _log.warning("the lease of the dispatcher cannot be renewed: %s", error)
            self._closing.wait(RENEW_S)


@contextlib.contextmanager
def holder_in(folder: Path) -> Iterator[str]:
    """Yield the name of a holder for the block: that of the process before it in this folder, which has ended.

    So a dispatcher that is started again has its lease at once. Raises `OSError`.
    """
    name, file = f"{socket.gethostname()[:40]}-{uuid.uuid4().hex[:12]}", folder / "dispatcher"
    with lock_if_free(folder / "lock") as is_free:
        if not is_free:
            yield name
            return
        if not file.exists():
            replace_file(file, name, mode=0o600)
        yield file.read_text()
