"""A process that replays a run while it is being recorded, and reports each decision of GEPA with its place.

Started as `python -P -m gepa_client.page.replay_process` with the run's hash seed. Standard input holds a `DriverJob`
as one line; its end ends the process. Standard output gets a line `{"at": N, "event": {...}}` for each event, as
`evolverpc replay` emits it: `at` is how many numbers GEPA had requested.
"""

import json
import os
import sys
import threading
import time
from dataclasses import replace

from gepa_client.journal.buffer import LARGEST_HELD, JournalStorage, whole_answer
from gepa_client.journal.entries import COMMITMENT, EVALUATE, Entry
from gepa_client.journal.store import Store, open_store
from gepa_client.journal.stored_fields import PAGE

POLL_S = 0.1
NICENESS = 10
"""The optimizer comes first where both want the processor."""


class FollowedJournal(JournalStorage):
    """The journal of a run that may still be written: a read waits for its entry while the run is driven."""

    keeps = True

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._run_id = store, run_id
        self._ahead: dict[tuple[str, int], Entry] = {}

    def read(self, part: str, number: int) -> Entry | None:
        """Return the entry of this number, None if the run ended without it."""
        while True:
            driven = self._store.run(self._run_id).claim.owner is not None
            entry = self._find(part, number)
            if entry is not None or not driven or part == COMMITMENT:
                return entry
            time.sleep(POLL_S)

    def answer(self, part: str, number: int) -> bytes:
        """Return the whole answer of an entry."""
        return whole_answer(self._store, self._run_id, part, number)

    def _find(self, part: str, number: int) -> Entry | None:
        entry = self._ahead.pop((part, number), None)
        if entry is None:
            page = self._store.entries(self._run_id, part, number, PAGE, largest=LARGEST_HELD)
            self._ahead = {(part, found.number): found for found in page}
            entry = self._ahead.pop((part, number), None)
        if entry is not None and entry.omitted and entry.kind != EVALUATE:
            return replace(entry, answer=self.answer(part, number), omitted=0)
        return entry


def main() -> None:
    """Replay to the end of the run."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 (a descriptor)
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    os.nice(NICENESS)
    job_line = sys.stdin.readline()
    threading.Thread(target=_end_with_parent, daemon=True).start()

    from gepa_client.errors import ClientError, Interrupted  # a second of imports
    from gepa_client.journal.run_events import Event
    from gepa_client.run.control_messages import DriverJob
    from gepa_client.run.replay_run import replay_journal, replay_with
    from gepa_client.transport.event_loop import CancelToken

    job = DriverJob.model_validate_json(job_line)
    store = open_store(job.store)
    journal = replay_journal(store, job, FollowedJournal(store, job.run_id), CancelToken())

    def emit(event: Event) -> None:
        written = b'{"at":%d,"event":%s}\n' % (journal.next_number, event.model_dump_json().encode())
        out.write(written)
        out.flush()

    try:
        emit(replay_with(journal, store, job, emit))
    except (ClientError, Interrupted, OSError, ValueError) as error:
        out.write(json.dumps({"at": journal.next_number, "error": str(error)}).encode() + b"\n")
        out.flush()


def _end_with_parent() -> None:
    while sys.stdin.readline():
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
    os._exit(0)  # threads of libraries may not keep it
