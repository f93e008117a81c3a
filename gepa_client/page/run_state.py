"""Read the state of a run: its record, its last heartbeat, what users asked for, its totals, what it came to."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evolverpc_common.display_text import command, without_password
from gepa_client.analysis.explanation import Explanation, explain
from gepa_client.analysis.failed_examples import failed_examples
from gepa_client.analysis.proposals import RecordedProposals
from gepa_client.analysis.steered import TextsOutcome, request_text, taken_text, texts_outcomes
from gepa_client.certificate.certificate import certify
from gepa_client.errors import NoCertificate
from gepa_client.journal.entries import CONTROL, RESUMED_BY, SEARCH, Entry, Spending, SteeringRequest, StoredRun
from gepa_client.journal.lease import lease_seconds
from gepa_client.journal.requests import SHOWN
from gepa_client.journal.run_events import FailureGroup, Started
from gepa_client.journal.steer_entries import SteerEntry, action_of
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import OVER
from gepa_client.page.page_events import (
    CommandHint,
    FailureCounts,
    LongInFlight,
    Now,
    Run,
    SpendingSoFar,
    StatedFact,
    Steer,
    Summary,
    SummaryTable,
)
from gepa_client.page.search_reader import SearchReader
from gepa_client.report import summary_fields as fields
from gepa_client.report.calling_program import load_call
from gepa_client.report.event_words import failure_messages, failure_places
from gepa_client.report.no_improvement import no_improvement
from gepa_client.run.output_folder import BEST_CANDIDATE
from gepa_client.run.recorded_run import view_of
from gepa_client.run.run_view import RunView
from protocol.code import CODE_COMPONENTS, GIT_BRANCH


def run_event(run: StoredRun, search: SearchReader, *, url: str, named: str | None, driven: bool) -> Run:
    """Return the event. `url`: of the store; `named`: what commands call it. `driven`: a process drives the run."""
    started, config = search.started, run.config
    components = started.components if started is not None else []
    return Run(
        run_id=run.id,
        name=run.name,
        status=run.status,
        reason=run.reason,
        program=run.program,
        program_version=started.program_version if started is not None else None,
        created=run.created,
        started=run.started,
        completed=run.completed,
        settings={name: value for name, value in fields.changed_settings(config).items() if name != RESUMED_BY},
        budget=run.counters.get("max_metric_calls", config.get("max_metric_calls")),
        components=[name for name in components if name not in CODE_COMPONENTS],
        splits=started.splits if started is not None else {},
        sampled=started.sampled if started is not None else None,
        reflection_model=config.get("reflection_lm"),
        output=run.output,
        parent=_parent(run.parent),
        driver=run.driver,
        driven=driven,
        store=without_password(url),
        warnings=[str(message) for message in run.counters.get("warnings") or ()],
        commands=list(_commands(run, named, started, search.end)),
    )


def _parent(parent: dict[str, Any] | None) -> str | None:
    if parent is None:
        return None
    at = parent.get("at")
    return str(parent.get("run")) + (f" at entry {at:,}" if isinstance(at, int) else "")


def _commands(run: StoredRun, store: str | None, started: Started | None, end: int) -> Iterator[CommandHint]:
    if run.status == "running":
        yield CommandHint(command=command("pause", run.id, store=store), what="stop the run; `resume` continues it")
        yield CommandHint(
            command=command("cancel", run.id, store=store),
            what="stop the run and mark it as cancelled; its results are kept, and `resume` continues it",
        )
    if run.status in ("paused", "failed"):
        resumed = run.resumed_by or command("resume", run.id, store=store)
        yield CommandHint(command=resumed, what="continue the run; nothing that is recorded is paid for again")
    if started is not None and GIT_BRANCH in started.components:
        if run.status != "running":
            check_out = command("branches", run.id, "--check-out", store=store)
            yield CommandHint(command=check_out, what="check out the code of the best candidate, in its repository")
        branches = command("branches", run.id, store=store)
        yield CommandHint(command=branches, what="list all changes of code; --diff N prints one of them")
    if run.output is not None and run.status != "running":
        yield CommandHint(
            command=load_call(started.language if started is not None else None, run.output),
            what=f"load the best texts in a program; {BEST_CANDIDATE} there has them",
        )
    yield CommandHint(command=command("show", run.id, store=store), what="print the run with its best candidate")
    if end:
        fork = command("fork", run.id, "--at", str(end), store=store)
        yield CommandHint(command=fork, what="make a new run that begins with all that is recorded of this one")
    yield CommandHint(command=command("watch", run.id, store=store), what="open this page again")


_OF_A_DRIVER = ("in_flight", "rate", "seconds_left", "cost_at_end_usd", "no_result_s", "timeouts")
"""What a heartbeat states that is nothing any more once the run is not driven."""


def now_event(run: StoredRun, search: SearchReader, age: float | None) -> Now:
    """Return the event of this moment. `age`: seconds since the last heartbeat; None if the run is not driven."""
    counters, driven = run.counters, age is not None
    found: dict[str, Any] = counters.get("now") or {}
    shown = {name: value for name, value in found.items() if driven or name not in _OF_A_DRIVER}
    return Now.model_validate(
        {
            **{name: value for name, value in shown.items() if name in Now.model_fields},
            "iteration": counters.get("iteration"),
            "metric_calls": counters.get("metric_calls"),
            "longest": [_in_flight(each, search) for each in found.get("longest") or () if driven],
            "active_seconds": counters.get("active_seconds"),
            "beat_age_s": None if age is None else float(int(age)),
            "lost": age is not None and age > lease_seconds(run),
        }
    )


def _in_flight(each: Mapping[str, Any], search: SearchReader) -> LongInFlight:
    """Return an example of a heartbeat with the names of its row and candidate."""
    index = search.indices.get(each["candidate"], each["candidate"][:SHOWN])
    return LongInFlight(**{**each, "row": search.row_name(each["row"]), "candidate": str(index)})


def steers(store: Store, run: StoredRun, proposals: RecordedProposals) -> Iterator[Steer]:
    """Yield the requests to a run, with the outcomes of their texts. `proposals`: those that are read."""
    requests = store.requests(run.id)
    taken = (
        SteerEntry(id=each.id, action=action_of(each.action), author=each.author, created=each.created)
        for each in requests
        if each.outcome == "taken"
    )
    outcomes = texts_outcomes(taken, proposals.found.values(), over=run.status in OVER)
    for asked in requests:
        part = SEARCH if asked.stops is None else CONTROL
        yield Steer(
            key=asked.id,
            at=None if asked.number is None or part == CONTROL else asked.number + 1,
            action=str(asked.action.get("kind")),
            requested=asked.created,
            by=asked.author,
            text=request_text(asked),
            outcome=_outcome(asked, part, outcomes.get(asked.id)),
        )


def _outcome(asked: SteeringRequest, part: str, texts: TextsOutcome | None) -> str | None:
    if asked.outcome == "taken" and asked.number is not None:
        return taken_text(part, asked.number, texts)
    return asked.outcome if asked.reason is None else f"{asked.outcome}: {asked.reason}"


def ending(store: Store, run: StoredRun) -> Summary | None:
    """Return what a run came to; None if it has not evaluated an example."""
    if run.status == "pending" or run.identity is None:
        return None
    return summary_of(certified(store, run, view_of(store, run)), explain(store, run))


def certified(store: Store, run: StoredRun, view: RunView) -> RunView:
    """Add to the view of a run that is over its certificate, or why there is none; return the view."""
    if run.status in OVER:
        try:
            view.certificate = certify(store, run)
        except NoCertificate as error:
            view.no_certificate = str(error)
    return view


def summary_of(view: RunView, explained: Explanation | None) -> Summary:
    """Return the summary; `explained`: None if the run holds no candidate."""
    headline = view.headline()
    validation = view.certificate.validation if view.certificate is not None else None
    return Summary(
        best=view.best.index if view.best is not None else None,
        test=headline if headline is not None and headline.of_test else None,
        compared=view.whole_validation(),
        low=validation.low if validation is not None else None,
        high=validation.high if validation is not None else None,
        story=fields.story(view, explained),
        certificate=_stated(fields.certificate_facts(view)),
        no_improvement=_stated(no_improvement(view)),
        facts=_stated(fields.summary_facts(view)),
        tables=[
            SummaryTable(heading=heading, columns=list(columns), rows=[list(row) for row in rows])
            for heading, columns, rows in fields.tables(view)
        ],
    )


def _stated(facts: Sequence[tuple[str, str]]) -> list[StatedFact]:
    return [StatedFact(label=label, text=text) for label, text in facts]


def spending_event(spending: Sequence[Spending]) -> SpendingSoFar:
    """Return the event of what a run spent."""
    heading, columns, rows = fields.spending_table(spending)
    heading = f"{heading}: {fields.tokens_text(spending)}"
    table = SummaryTable(heading=heading, columns=[*columns], rows=[[*row] for row in rows])
    return SpendingSoFar(cost=fields.whole_cost(spending), table=table)


def failure_counts(store: Store, run_id: str, search: SearchReader) -> FailureCounts | None:
    """Return the event of the examples that failed in the program; None if none did."""
    cells: dict[str, list[int]] = {}

    def add(entry: Entry) -> None:
        if entry.part == SEARCH and (place := search.places.get(entry.row)) is not None:
            cells.setdefault(entry.candidate[:SHOWN], []).append(place)

    failed = failed_examples(store, run_id, add)
    if failed is None:
        return None
    words = list(map(_words, failed.groups))
    return FailureCounts(
        failed=failed.failed, evaluated=failed.evaluated, groups=failed.groups, words=words, cells=cells
    )


def _words(group: FailureGroup) -> str:
    return "; ".join(filter(None, (failure_places(group), failure_messages(group))))
