"""The record of a run from its store: what its events state, and what follows from its entries."""

from collections.abc import Iterator
from pathlib import Path

import orjson

from gepa_client.analysis.copied_text import copied_examples
from gepa_client.analysis.failed_examples import failed_examples, retried_examples
from gepa_client.analysis.mutation_outcomes import recorded_mutations
from gepa_client.evolution.mutation_events import mutation_event
from gepa_client.journal.entries import COMMITMENT, PROCESSES, StoredRun
from gepa_client.journal.history import entries, event_of, recorded_events
from gepa_client.journal.run_events import CandidateFound, Event, Finished, Sealed, Started
from gepa_client.journal.store import Store
from gepa_client.run.gateway_record import recorded_gateway_events
from gepa_client.run.output_folder import host_totals
from gepa_client.run.run_view import RunView
from protocol.code import code_at


def view_of(store: Store, run: StoredRun) -> RunView:
    """Return the record of a run, with how it ended unless it is running, without its certificate.

    Raises:
        JournalError: the store cannot be read.
    """
    known = {"seconds": run.counters.get("active_seconds"), "spent_usd": run.counters.get("spent_usd")}
    record = RunView(**{name: value for name, value in known.items() if value is not None})
    last = _last_process(store, run)
    limit = {"max_metric_calls": run.config["max_metric_calls"]} if "max_metric_calls" in run.config else {}
    began = [event.model_copy(update=limit) for event in last if isinstance(event, Started)]  # a user may have set one
    for event in (*began, *_found(store, run)):
        record.apply(event)
    record.warnings = [str(message) for message in run.counters.get("warnings") or ()]
    for event in last:
        if not isinstance(event, Started):
            record.apply(event)
    calls, refused = recorded_gateway_events(store, run.id)
    computed = (failed_examples(store, run.id), retried_examples(store, run.id), copied_examples(store, run.id))
    for found in (calls, *refused, *computed):
        if found is not None:
            record.apply(found)
    if run.status not in ("pending", "running"):
        ended = record.finished or Finished(status="paused", metric_calls=record.budget_used)
        state = {"status": run.status, "reason": run.reason, "active_seconds": run.counters.get("active_seconds")}
        record.apply(ended.model_copy(update=state))
    try:
        record.hosts = host_totals(Path(run.output)) if run.output is not None else {}
    except (OSError, ValueError) as error:
        record.warnings.append(f"the connections of sandboxes are not shown: {error}")
    return record


def _last_process(store: Store, run: StoredRun) -> list[Event]:
    """Return what the last process has recorded that has left its replay; empty if there is none."""
    before: list[Event] = []
    found: list[Event] = []
    for entry in entries(store, run.id, PROCESSES):
        event = event_of(entry)
        if isinstance(event, Started):
            before, found = found, [event]
        elif isinstance(event, Finished) and event.in_replay and before:
            found, before = before, []
        else:
            found.append(event)
    if before and all((event.at or 0) < (before[-1].at or 0) for event in found):  # in its replay, or killed there
        return [event for event in before if run.status != "running" or not isinstance(event, Finished)]
    return found


def _found(store: Store, run: StoredRun) -> Iterator[Event]:
    """Yield the events of the search: the sealed rows, what GEPA decided, and the changes of code."""
    for sealed in store.entries(run.id, COMMITMENT, 0, 1):
        commitment = orjson.loads(sealed.answer)
        yield Sealed(rows=len(commitment["rows"]), digest=commitment["digest"])
    running: dict[str | None, int] = {}
    for event in recorded_events(store, run.id):
        if isinstance(event, CandidateFound):
            running.setdefault(code_at(event.texts)[1], event.index)
        yield event
    for number, made in recorded_mutations(store, run.id).items():
        commits = (made.parent, made.other)
        parents = [running[commit] for commit in commits if commit is not None and commit in running]
        yield mutation_event(number, made, parents)
