"""What a run began with, as the page needs it: the program's description, the rows."""

from typing import Any

from evolverpc_common.display_text import one_line
from gepa_client.analysis.copied_text import strings_in
from gepa_client.journal.entries import START
from gepa_client.journal.history import DISCOVERY, RecordedRow, discovery, row_counts, row_names, selection_rows
from gepa_client.journal.requests import SHOWN, digest_of
from gepa_client.journal.store import Store
from gepa_client.page.event_log import EventLog
from gepa_client.page.page_events import Rows

ROWS_SENT = 5_000
"""Ids of rows in one event."""

LABEL = 60
"""Characters of the label of a row."""


class InitialRows:
    """The rows of a run; `read` adds their events once they are recorded.

    `declared`: the server's description, None before it is recorded. `train`, `val`: rows in order; `val` are the
    training rows if no validation rows were given. `places`: of validation rows, by their digests. `names`: of
    validation rows in scores.
    """

    def __init__(self, store: Store, run_id: str, log: EventLog) -> None:
        self._store, self._id, self._log = store, run_id, log
        self.declared: dict[str, Any] | None = None
        self.train: list[RecordedRow] = []
        self.val: list[RecordedRow] = []
        self.places: dict[str, int] = {}
        self.names: list[str] = []
        self.splits: dict[str, int] = {}
        """Rows by split."""
        self._row_names: dict[str, str] = {}

    @property
    def program(self) -> dict[str, Any]:
        """The program as its server declared it."""
        return (self.declared or {}).get("program") or {}

    @property
    def language(self) -> str | None:
        """The language of the program's server; None before it is known."""
        return self.declared["server"]["language"] if self.declared is not None else None

    def row_name(self, digest: str) -> str:
        """Return the split and the id of the row with this digest; the beginning of the digest if there is none."""
        self._row_names = self._row_names or row_names(self._store, self._id)
        return self._row_names.get(digest, f"row {digest[:SHOWN]}")

    def read(self) -> None:
        """Read the rows if they have not been read."""
        if self.val:
            return
        if self.declared is None:
            if not self._store.entries(self._id, START, DISCOVERY, 1):
                return
            self.declared = discovery(self._store, self._id)
        splits = selection_rows(self._store, self._id)
        if not splits:
            return
        self.splits = row_counts(self._store, self._id)
        own = "val" in splits
        self.train, self.val = splits["train"], splits.get("val", splits["train"])
        self.names = [str(row.row_id) for row in self.val]
        self.places = {digest_of(row.example): place for place, row in enumerate(self.val)}
        for start in range(0, len(self.val), ROWS_SENT):
            part = self.val[start : start + ROWS_SENT]
            ids = [row.id for row in part]
            labels = [label_of(row.data) for row in part]
            self._log.add(Rows(start=start, ids=ids, labels=labels, total=len(self.val), training=not own))


def label_of(data: Any) -> str:
    """Return the beginning of the first text in the data of a row as one line; empty without one."""
    return next((one_line(text[: 4 * LABEL], LABEL) for text in strings_in(data) if text.strip()), "")
