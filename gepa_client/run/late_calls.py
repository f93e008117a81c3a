"""Calls of models whose end came when the optimizer had ended: recorded all the same, as they may have cost much."""

from collections.abc import Sequence

from evolverpc_common.redaction import Secrets
from gepa_client.errors import JournalError
from gepa_client.journal.buffer import StoredTape
from gepa_client.journal.journal import Journal
from gepa_client.journal.run_events import Event
from gepa_client.journal.store_factory import open_store
from gepa_client.journal.usage import Spend
from gepa_client.run.control_messages import ModelCall, Refusal
from gepa_client.run.gateway import GatewayRecord
from gepa_client.transport.cancel_token import Halt

NOBODY = ""
"""Who writes while nobody drives a run."""


def record_late(where: str, run_id: str, secrets: Sequence[str], told: Sequence[ModelCall | Refusal]) -> list[Event]:
    """Write them into the run's journal. `where`: its store; `secrets`: what must not be in it.

    Returns what there is of calls and refusals now, in all.

    Raises:
        JournalError: they cannot be written; somebody else may drive the run by now.
    """
    failures: list[BaseException] = []
    news: list[Event] = []
    store = open_store(where)
    try:
        tape = StoredTape(store, run_id, NOBODY, failures.append)
        try:
            journal = Journal(run_id, tape, Spend(), Halt(), Secrets(secrets), metered=True)
            record = GatewayRecord()
            record.begin(journal, store, news.append)
            for message in told:
                record.heard(message)
            record.end()
            if (calls := record.news(at_once=True)) is not None:
                news.append(calls)
        finally:
            tape.close()
    finally:
        store.close()
    if failures:
        raise JournalError(str(failures[0]))
    return news
