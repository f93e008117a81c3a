"""Read a run's store as it grows, and turn what is new into events of the page."""

import ast
import functools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from evolverpc_common.display_text import line
from evolverpc_common.printed_commands import command, without_password
from evolverpc_common.settings.sources import SettingsError
from gepa_client.analysis.copied_examples import copied_examples
from gepa_client.analysis.explanation import explain
from gepa_client.analysis.failed_examples import EntryNames, failed_examples
from gepa_client.analysis.proposals import REFLECTION
from gepa_client.certificate.certificate import certify
from gepa_client.errors import JournalError, NoCertificate, NoSuchRun
from gepa_client.evolution.names import branch_run_name, component_texts
from gepa_client.journal import run_events
from gepa_client.journal.entries import (
    COMMITMENT,
    COMPLETION,
    EVALUATE,
    MUTATION,
    PROPOSAL,
    RACE,
    SEARCH,
    START,
    STOP,
    CandidateRecord,
    Entry,
    StoredRun,
)
from gepa_client.journal.history import DISCOVERY, RecordedRow, discovery, row_counts, selection_rows
from gepa_client.journal.lease import lease_seconds
from gepa_client.journal.mutation_entries import MutationEntry
from gepa_client.journal.records import OVER, PAGE
from gepa_client.journal.requests import SHOWN, digest_of, evaluate_key, evaluated_of
from gepa_client.journal.store import Store, named_store
from gepa_client.page.event_log import EventLog
from gepa_client.page.page_events import (
    TEXT_BEGINNING,
    TEXT_SENT,
    Candidate,
    CertificateFound,
    CodeVersion,
    CommandHint,
    Copied,
    EndpointNow,
    Failures,
    FinishedRun,
    Forecast,
    Iteration,
    KindSpending,
    LeaksFound,
    LongInFlight,
    MetricCalls,
    Mutation,
    Now,
    ParentRun,
    Pool,
    Position,
    Race,
    RaceStanding,
    Reflection,
    Results,
    Rows,
    Run,
    RunWarning,
    Sealed,
    SentText,
    SpendingSoFar,
    Steer,
    Stopped,
    StoreTrouble,
    Tested,
    Ties,
)
from gepa_client.page.proposal_reader import ProposalReader
from gepa_client.page.recorded_decisions import KnownRun, RecordedDecisions
from gepa_client.page.replay_follower import Decided, ReplayFollower
from gepa_client.page.summary import summary_of
from gepa_client.report.record import RunRecord
from gepa_client.run.gateway_record import recorded_gateway_events
from gepa_client.run.output_folder import HostTotals, host_totals
from protocol.code import CODE_COMPONENTS, GIT_BRANCH, code_at

LIVE_POLL_S = 0.1
IDLE_POLL_S = 1.0

ROWS_SENT = 5_000
"""Ids of rows in one event."""

PAGES_AT_ONCE = 8
"""Pages of entries that one poll reads at most, so that what it found is sent soon."""

SHARE = 0.05
"""The part of the time that reading totals anew may take: they grow with the run."""

LEAST_PAUSE_S = 1.0
HELD_S = 5.0
"""Seconds that an event of the replay waits for its candidate to be read from the store."""


class Periodic:
    """Work that is repeated, with pauses that grow with the time it takes."""

    def __init__(self) -> None:
        self._next = 0.0

    def due(self) -> bool:
        """Return whether it may be done again."""
        return time.monotonic() >= self._next

    def done(self, began: float) -> None:
        """Note that it was done, and when it began."""
        took = time.monotonic() - began
        self._next = time.monotonic() + max(LEAST_PAUSE_S, took / SHARE)


class RunReader:
    """One run of a store; `poll` adds what is new to the log. Used by one thread.

    `url`: of the store, for the process that replays. `replays`: whether to start that process. `known`: a run that has
    ended, whose decisions are known.
    """

    def __init__(
        self, store: Store, url: str, run_id: str, log: EventLog, *, replays: bool = True, known: KnownRun | None = None
    ) -> None:
        self._store, self._url, self._id, self._log = store, url, run_id, log
        self._replays, self._known = replays, known
        self._record = RunRecord() if known is None else known.record
        self._declared: dict[str, Any] | None = None
        self._model: str | None = None
        self._val: list[RecordedRow] = []
        self._in_flight: dict[str, tuple[str, str]] = {}
        """Row and candidate of listed examples, by the digest of their request."""
        self._score_names: list[str] = []
        self._places: dict[str, list[int]] = {}
        self._wire: dict[int, str] = {}
        self._train_ids: set[str] = set()
        self._splits: dict[str, int] = {}
        self._candidates: list[CandidateRecord] = []
        self._digests: dict[str, str | None] = {}
        self._missing: set[int] = set()
        self._end = 0
        self._stop: int | None = None
        self._waiting: dict[int, Entry] = {}
        self._ordered = 0
        self._provisional: list[Entry] = []
        self._proposals: ProposalReader | None = None
        self._follower: ReplayFollower | RecordedDecisions | None = None
        self._followed: str | None = None
        self._held: tuple[float, Decided] | None = None
        self._replayed: int | None = 0
        self._why_not: str | None = None
        self._jobs: dict[int, int] = {}
        self._mutations: dict[str, int] = {}
        self._totals, self._failures = Periodic(), Periodic()
        self._outcomes: object = None
        self._ending: object = None
        self._beat: tuple[int, float] | None = None
        self._trouble: str | None = None

    def close(self) -> None:
        """End the process that replays."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def poll(self) -> float:
        """Add what is new; return after how many seconds to poll again.

        What the store raises becomes an event.
        """
        try:
            run = self._store.run(self._id)
            # a run that is known is shown as it was replayed, though its driver may continue it
            driven = self._known is None and run.claim.owner is not None
            more = self._read(run, driven=driven)
        except NoSuchRun as error:
            self._add_trouble(str(error), gone=True)
            return IDLE_POLL_S
        except JournalError as error:
            self._add_trouble(str(error), gone=False)
            return IDLE_POLL_S
        if self._trouble is not None:
            self._trouble = None
            self._log.add(StoreTrouble(problem=None, gone=False))
        self._log.published()
        return 0.0 if more else LIVE_POLL_S if driven or self._follower is not None else IDLE_POLL_S

    def _add_trouble(self, problem: str, *, gone: bool) -> None:
        self._trouble = problem
        self._log.add(StoreTrouble(problem=problem, gone=gone))
        self._log.published()

    def _read(self, run: StoredRun, *, driven: bool) -> bool:
        """Read everything once; return whether there is more to read at once."""
        self._read_start(run)
        self._log.add(self._run_event(run, driven=driven))
        self._read_candidates()
        self._read_now(run, driven=driven)
        self._read_requests()
        self._log.published()  # the first paint needs no more
        more = self._read_entries()
        self._follow(run, driven=driven, more=more)
        ended = not driven and not more and self._follower is None
        self._read_totals(run, at_once=ended and self._ending != _end_mark(run))
        if ended:
            self._read_ending(run)
        elif driven and self._ending is not None:
            self._ending = None
            self._log.add(FinishedRun(status=None, reason=None, completed=None, active_seconds=None))
        self._log.add(
            Position(
                end=self._end - (self._stop == self._end - 1),
                read=min(self._missing, default=self._end) if not more else self._ordered,
                replayed=self._replayed,
                why_not_replayed=self._why_not,
                complete=ended,
            )
        )
        return more

    # --- what the run began with -------------------------------------------------------------------------------------

    def _read_start(self, run: StoredRun) -> None:
        self._model = run.config.get("reflection_lm")
        if self._val:
            return
        if self._declared is None:
            found = self._store.entries(self._id, START, DISCOVERY, 1)
            if not found:
                return
            self._declared = discovery(self._store, self._id)
        splits = selection_rows(self._store, self._id)
        if not splits:
            return
        self._splits = row_counts(self._store, self._id)
        self._val = splits.get("val", splits["train"])
        self._score_names = [str(row.row_id) for row in self._val]
        own = "val" in splits
        self._train_ids = {repr(row.id) for row in splits["train"]} if own else set()
        for place, row in enumerate(self._val):
            self._places.setdefault(repr(row.id), []).append(place)
        for start in range(0, len(self._val), ROWS_SENT):
            part = self._val[start : start + ROWS_SENT]
            held = "split" in part[0].example
            ids = [row.id for row in part]
            self._log.add(Rows(start=start, ids=ids, total=len(self._val), held_by_server=held, training=not own))
        self._proposals = ProposalReader(self._store, run, self._candidates, splits["train"])
        sealed = self._store.entries(self._id, COMMITMENT, 0, 1)
        if sealed:
            answer = orjson.loads(sealed[0].answer)
            self._log.add(Sealed(rows=len(answer["rows"]), digest=answer["digest"]))

    def _run_event(self, run: StoredRun, *, driven: bool) -> Run:
        declared = self._declared or {}
        program = declared.get("program") or {}
        seed = program.get("seed_candidate") or {}
        config = run.config
        parent = run.parent
        objectives = [] if not self._candidates else sorted(self._candidates[0].objective_scores or {})
        budget = run.counters.get("max_metric_calls", config.get("max_metric_calls"))
        offered = GIT_BRANCH in seed and "mutations" in (declared.get("capabilities") or [])
        return Run(
            run_id=run.id,
            name=run.name,
            status=run.status,
            reason=run.reason,
            program=run.program or program.get("name"),
            program_version=program.get("version"),
            created=run.created,
            started=run.started,
            completed=run.completed,
            settings=config,
            budget=budget,
            components=[*(name for name in seed if name not in CODE_COMPONENTS)],
            splits=self._splits,
            objectives=objectives,
            front_type=str(config.get("frontier_type") or "instance"),
            evolve=config.get("evolve") or ("both" if offered else "prompts"),
            reflection_model=config.get("reflection_lm"),
            output=run.output,
            parent=None if parent is None else ParentRun(run=str(parent.get("run")), at=_integer(parent.get("at"))),
            driver=run.driver,
            driven=driven,
            store=without_password(self._store.url),
            commands=list(self._commands(run)),
        )

    def _commands(self, run: StoredRun) -> Iterator[CommandHint]:
        store = named_store(self._url)
        if run.status == "running":
            yield CommandHint(command=command("cancel", run.id, store=store), what="end the run for good")
        if run.status in ("paused", "failed"):
            resumed = run.resumed_by or command("resume", run.id, store=store)
            yield CommandHint(command=resumed, what="continue the run; nothing that is recorded is paid for again")
        yield CommandHint(command=command("show", run.id, store=store), what="print the run with its best candidate")
        if GIT_BRANCH in (((self._declared or {}).get("program") or {}).get("seed_candidate") or {}):
            branches = command("branches", run.id, store=store)
            yield CommandHint(command=branches, what="list all changes of code; --diff N prints one of them")
        if self._end:
            fork = command("fork", run.id, "--at", str(self._end), store=store)
            yield CommandHint(command=fork, what="make a run of its own that begins as this one")

    # --- the search --------------------------------------------------------------------------------------------------

    def _read_candidates(self) -> None:
        if not self._val:
            return
        found = self._store.candidates(self._id, max(0, len(self._candidates) - 1))
        for kept in found:
            self._candidates[kept.index :] = [kept]
            self._digests.setdefault(digest_of(kept.texts)[:SHOWN], digest_of(kept.texts))
            self._log.add(self._candidate_event(kept))

    def _candidate_event(self, kept: CandidateRecord) -> Candidate:
        branch, commit = code_at(kept.texts)
        digest = digest_of(kept.texts)[:SHOWN]
        code = None
        if commit is not None:
            code = CodeVersion(branch=branch, commit=commit, mutation=self._mutations.get(commit))
        return Candidate(
            at=kept.number,
            index=kept.index,
            digest=digest,
            parents=kept.parents,
            iteration=kept.iteration,
            score=kept.score,
            metric_calls=kept.metric_calls,
            found=kept.found,
            cost_usd=kept.cost_usd,
            objective_scores=kept.objective_scores,
            scores=[kept.scores.get(name) for name in self._score_names],
            texts={name: sent_text(text) for name, text in component_texts(kept.texts).items()},
            code=code,
        )

    def _read_entries(self) -> bool:
        """Read new entries, without the answers that are not needed; return whether there are more."""
        if self._proposals is None:
            return False
        fresh: list[Entry] = []
        known = sorted(self._missing)[:PAGE]
        if known:
            fresh += self._store.entries_at(self._id, SEARCH, known)
        more = False
        for _ in range(PAGES_AT_ONCE):
            page = self._store.entries(self._id, SEARCH, self._end, PAGE, largest=0)
            for entry in page:
                self._missing.update(range(self._end, entry.number))
                self._end = entry.number + 1
            fresh += page
            more = len(page) == PAGE
            if not more:
                break
        for entry in fresh:
            self._missing.discard(entry.number)
            if entry.kind != STOP:
                self._waiting[entry.number] = entry
        stops = [entry.number for entry in fresh if entry.kind == STOP]
        self._missing.update(stops)  # it may be taken out, and another entry take its number
        if self._stop is not None and not stops:
            self._log.add(Stopped(at=self._stop, status=None, reason=None))
        self._stop = min(stops, default=None)
        self._provisional += [entry for entry in fresh if entry.kind == EVALUATE]
        while (entry_ := self._waiting.pop(self._ordered, None)) is not None:
            self._ordered += 1
            begun = self._proposals.read(entry_)
            if begun is not None:
                self._log.add(begun)
        self._read_answers([entry for entry in fresh if entry.kind in (COMPLETION, PROPOSAL, MUTATION, RACE, STOP)])
        self._read_results(caught_up=not more)
        return more

    def _read_answers(self, found: Sequence[Entry]) -> None:
        """Add what small entries hold."""
        if not found:
            return
        numbers = [entry.number for entry in found]
        answered: list[Entry] = []
        for start in range(0, len(numbers), PAGE):
            answered += self._store.entries_at(self._id, SEARCH, numbers[start : start + PAGE])
        answered_by = self._proposals.answered if self._proposals is not None else {}
        ends = {end.number: end for end in self._store.finished_at(self._id, SEARCH, numbers)}
        for entry in answered:
            if entry.kind == RACE:
                self._log.add(_race(entry))
            elif entry.kind == MUTATION:
                self._add_mutation(entry)
            elif entry.kind == STOP:
                stop = orjson.loads(entry.answer)
                self._log.add(Stopped(at=entry.number, status=stop["status"], reason=stop["reason"]))
            else:
                usage = (ends[entry.number].usage if entry.number in ends else None) or {}
                component, again = _reflected(entry.about)
                self._log.add(
                    Reflection(
                        at=entry.number,
                        proposal=answered_by.get(entry.number),
                        component=component,
                        model=self._model,
                        again=again,
                        input_tokens=_integer(usage.get("input_tokens")),
                        output_tokens=_integer(usage.get("output_tokens")),
                        cost_usd=usage.get("cost_usd"),
                        seconds=ends[entry.number].seconds if entry.number in ends else None,
                    )
                )

    def _add_mutation(self, entry: Entry) -> None:
        found = MutationEntry.model_validate_json(entry.answer)
        made, refused = found.applied, found.rejected
        usage = made.usage if made is not None else refused.usage if refused is not None else None
        if made is not None:
            self._mutations[made.commit] = entry.number
        self._log.add(
            Mutation(
                at=entry.number,
                kind=found.kind,
                branch=f"evolve/{branch_run_name(self._id)}/{entry.number}",
                commit=made.commit if made is not None else None,
                parent_commit=found.parent,
                request=sent_text(found.request),
                location=found.location,
                stage=refused.stage if refused is not None else None,
                reason=line(refused.reason, TEXT_BEGINNING) if refused is not None else None,
                files=list(made.files) if made is not None else [],
                summary=made.summary if made is not None else None,
                cost_usd=usage.cost_usd if usage is not None else None,
            )
        )

    def _read_results(self, *, caught_up: bool) -> None:
        """Add results on validation rows of what is no candidate yet.

        `caught_up`: False while earlier results are read, of which those of dropped proposals are left out if their
        ids are those of training rows too: their texts would have to be worked out.
        """
        places: dict[int, tuple[str, int]] = {}
        children: dict[str, str] | None = None
        for entry in self._provisional:
            about = evaluated_of(entry.about)
            if about is None or about.candidate in self._digests:
                continue
            if about.quoted_id not in self._places:
                continue
            if about.quoted_id in self._train_ids:
                if not caught_up:
                    continue
                if children is None:
                    children = self._known_children()
                digest = children.get(about.candidate)
                if digest is None:
                    continue
                same = [
                    place
                    for place in self._places[about.quoted_id]
                    if evaluate_key(digest, self._wire_digest(place), self._val[place].id, about.traced).digest
                    == entry.digest
                ]
            else:
                same = self._places[about.quoted_id]
            if same:
                places[entry.number] = (about.candidate, same[0])
        self._provisional = []
        if not places:
            return
        numbers = sorted(places)
        for start in range(0, len(numbers), PAGE):
            answered = self._store.entries_at(self._id, SEARCH, numbers[start : start + PAGE])
            results = [(entry.number, orjson.loads(entry.answer)) for entry in answered if entry.kind == EVALUATE]
            self._log.add(
                Results(
                    candidates=[places[number][0] for number, _ in results],
                    rows=[places[number][1] for number, _ in results],
                    numbers=[number for number, _ in results],
                    scores=[each.get("score") for _, each in results],
                    statuses=[str(each.get("status")) for _, each in results],
                )
            )

    def _known_children(self) -> dict[str, str]:
        """Return the digests of the texts of what is evaluated now, by their beginnings."""
        children = self._proposals.children().values() if self._proposals is not None else []
        seed = ((self._declared or {}).get("program") or {}).get("seed_candidate")
        found = [digest_of(texts) for texts in [*children, *([seed] if seed is not None else [])]]
        return {digest[:SHOWN]: digest for digest in found}

    def _wire_digest(self, place: int) -> str:
        if place not in self._wire:
            self._wire[place] = digest_of(self._val[place].example)
        return self._wire[place]

    # --- GEPA's decisions --------------------------------------------------------------------------------------------

    def _follow(self, run: StoredRun, *, driven: bool, more: bool) -> None:
        """Start the replay if there is something to replay, and take over what it has reported."""
        if not self._replays:
            self._not_replayed("the page was opened without it")
        if self._replayed is None and self._proposals is not None:
            for event in self._proposals.undecided(self._ordered, driven=driven):
                self._log.add(event)
        if not self._replays:
            return
        mark = run.claim.owner or f"{run.status} {run.updated}"
        if self._follower is None and run.identity is not None and self._val and self._followed != mark:
            self._followed = mark
            try:
                self._follower = self._start(run)
                self._replayed, self._why_not = self._replayed or 0, None
            except (SettingsError, OSError) as error:
                self._not_replayed(str(error))
        while self._follower is not None and (decided := self._next_decided(more=more)) is not None:
            if decided.error is not None:
                self._not_replayed(decided.error)
            elif decided.event is not None:
                self._replayed = max(self._replayed or 0, decided.at)
                if self._known is None:
                    self._record.apply(decided.event)
                self._decide(decided.at, decided.event)
        if self._follower is not None and self._follower.ended:
            self._follower.close()
            self._follower = None
            if not driven and self._proposals is not None:
                for event in self._proposals.unfinished(self._end):
                    self._log.add(event)

    def _start(self, run: StoredRun) -> ReplayFollower | RecordedDecisions:
        if self._known is not None:
            return RecordedDecisions(self._record)
        self._record = RunRecord()  # a replay begins with the first event
        if self._proposals is not None:
            self._proposals.restart()
        return ReplayFollower(self._url, run)

    def _not_replayed(self, why: str) -> None:
        self._replayed, self._why_not = None, line(why, TEXT_BEGINNING)

    def _next_decided(self, *, more: bool) -> Decided | None:
        """Return the next event of the replay whose entries and candidate have been read; `more`: entries are left."""
        held = self._held or (time.monotonic(), self._follower.next() if self._follower is not None else None)
        since, decided = held
        if decided is None:
            return None
        event = decided.event
        unread = self._ordered < decided.at or (
            isinstance(event, run_events.CandidateFound) and event.index >= len(self._candidates)
        )
        waits = self._known is None and time.monotonic() - since < HELD_S  # nothing is written any more if it is known
        if unread and (more or waits):
            self._held = (since, decided)
            return None
        self._held = None
        return decided

    def _decide(self, at: int, event: run_events.Event) -> None:
        assert self._proposals is not None, "there are entries"  # noqa: S101
        add = self._log.add
        match event:
            case run_events.CandidateFound():
                add(Pool(at=at, front=event.front, best=event.best))
                add(MetricCalls(at=at, metric_calls=event.metric_calls))
                for found in self._proposals.kept(at, event):
                    add(found)
            case run_events.Budget():
                add(MetricCalls(at=at, metric_calls=event.metric_calls))
            case run_events.Rejected():
                for found in self._proposals.rejected(at, event):
                    add(found)
            case run_events.NoProposal():
                add(Iteration(at=at, iteration=event.iteration, why=event.reason))
                for found in self._proposals.without_proposal(at, event):
                    add(found)
            case run_events.StepFailed():
                add(
                    RunWarning(
                        at=at, message=line(f"iteration {event.iteration}: {event.step} failed: {event.message}")
                    )
                )
                for found in self._proposals.without_proposal(at, event):
                    add(found)
            case run_events.Steered() if event.best is not None:
                add(Pool(at=at, front=event.front, best=event.best))
            case run_events.TiesCompared():
                fields = {name: getattr(event, name) for name in ("best", "rows", "validation_rows", "candidates")}
                add(Ties(**fields))
                add(MetricCalls(at=at, metric_calls=event.metric_calls))
            case run_events.Tested():
                add(Tested(candidate=event.index, score=event.score, rows=event.rows, repeats=event.repeats))
            case _:
                pass

    # --- totals ------------------------------------------------------------------------------------------------------

    def _read_totals(self, run: StoredRun, *, at_once: bool) -> None:
        """Read the totals that are due; all of them if `at_once`: what is shown of a run that has ended is whole."""
        for message in run.counters.get("warnings") or ():
            self._log.add(RunWarning(at=None, message=str(message)))
        if not (at_once or self._totals.due()):
            return
        began = time.monotonic()
        spending = self._store.spending(self._id)
        kinds: dict[str, KindSpending] = {}
        for spent in spending:
            before = kinds.get(spent.kind)
            kinds[spent.kind] = KindSpending(
                kind=spent.kind,
                calls=spent.attempts + (before.calls if before else 0),
                examples=spent.examples + (before.examples if before else 0),
                input_tokens=spent.input_tokens + (before.input_tokens if before else 0),
                output_tokens=spent.output_tokens + (before.output_tokens if before else 0),
                cost_usd=spent.cost_usd + (before.cost_usd if before else 0.0),
                seconds=spent.seconds + (before.seconds if before else 0.0),
                unpriced=spent.unpriced + (before.unpriced if before else 0),
                unreported=spent.unreported + (before.unreported if before else 0),
            )
        calls, _ = recorded_gateway_events(self._store, self._id)
        self._log.add(
            SpendingSoFar(
                cost_usd=sum(each.cost_usd for each in kinds.values()),
                unpriced=sum(each.unpriced for each in kinds.values()),
                unreported=sum(each.unreported for each in kinds.values()),
                kinds=list(kinds.values()),
                models=calls.by_model,
                refused=calls.refused,
            )
        )
        self._totals.done(began)
        outcomes = [(spent.kind, spent.outcome, spent.attempts) for spent in spending if spent.outcome != "ok"]
        if outcomes and (at_once or (outcomes != self._outcomes and self._failures.due())):
            began, self._outcomes = time.monotonic(), outcomes
            cells: dict[str, list[int]] = {}
            failed = failed_examples(self._store, self._id, functools.partial(self._add_failed_cell, cells))
            if failed is not None:
                found = {"failed": failed.failed, "evaluated": failed.evaluated, "groups": failed.groups}
                self._log.add(Failures(**found, cells=cells))
            self._failures.done(began)

    def _add_failed_cell(self, cells: dict[str, list[int]], entry: Entry) -> None:
        """Add the validation row of a failed example, if it is one."""
        about = evaluated_of(entry.about)
        if entry.part != SEARCH or about is None:
            return
        digest = self._digests.get(about.candidate)
        for place in self._places.get(about.quoted_id, ()):
            key = evaluate_key(digest or "", self._wire_digest(place), self._val[place].id, about.traced)
            if digest is None or key.digest == entry.digest:
                cells.setdefault(about.candidate, []).append(place)
                break

    def _read_now(self, run: StoredRun, *, driven: bool) -> None:
        now = time.monotonic()
        if self._beat is None or self._beat[0] != run.claim.beat:
            self._beat = (run.claim.beat, now)
        age = now - self._beat[1] if driven else None
        counters = run.counters
        found: dict[str, Any] = counters.get("now") or {}
        lease_s = lease_seconds(run)
        self._log.add(
            Now(
                phase=found.get("phase"),
                iteration=counters.get("iteration"),
                metric_calls=counters.get("metric_calls"),
                evaluated=found.get("evaluated"),
                in_flight=found.get("in_flight") if driven else None,
                rate=found.get("rate") if driven else None,
                longest=self._longest(found.get("longest") or ()) if driven else [],
                last_result=found.get("last_result"),
                no_result_s=found.get("no_result_s") if driven else None,
                waiting=found.get("waiting"),
                waiting_for=found.get("waiting_for"),
                reflecting_since=found.get("reflecting_since"),
                reflecting=found.get("reflecting") or [],
                endpoints=[
                    EndpointNow(
                        name=str(each.get("name")),
                        state=str(each.get("state")),
                        slots=each.get("slots"),
                        in_flight=each.get("in_flight"),
                        detail=each.get("detail"),
                    )
                    for each in found.get("endpoints") or ()
                ],
                spent_usd=counters.get("spent_usd"),
                active_seconds=counters.get("active_seconds"),
                beat_age_s=None if age is None else float(int(age)),
                lost=age is not None and age > lease_s,
                forecast=_forecast(run, found) if driven else None,
            )
        )

    def _longest(self, found: Sequence[dict[str, Any]]) -> list[LongInFlight]:
        """Return examples of a heartbeat with the names of their rows and candidates, each named once."""
        digests = {each["digest"] for each in found}
        if not digests <= self._in_flight.keys():
            names = EntryNames(self._store.candidates(self._id), selection_rows(self._store, self._id))
            self._in_flight = {
                each["digest"]: names.row_and_candidate(Entry(SEARCH, 0, EVALUATE, each["digest"], each["about"], b""))
                for each in found
            }
        return [
            LongInFlight(row=row, candidate=candidate, seconds=each["seconds"], limit_s=each["limit_s"])
            for each in found
            for row, candidate in [self._in_flight[each["digest"]]]
        ]

    def _read_requests(self) -> None:
        """Add what users asked of the run."""
        for asked in self._store.requests(self._id):
            self._log.add(
                Steer(
                    key=asked.id,
                    at=None if asked.number is None else asked.number + 1,
                    action=str(asked.action.get("kind")),
                    requested=asked.created,
                    by=asked.author,
                    detail=asked.action,
                    outcome=asked.outcome if asked.reason is None else f"{asked.outcome}: {asked.reason}",
                )
            )

    def _read_ending(self, run: StoredRun) -> None:
        """Read what is known once a run has ended for now; once for each end."""
        if self._ending == _end_mark(run):
            return
        self._ending = _end_mark(run)
        if run.status == "pending":
            return
        self._log.add(
            FinishedRun(
                status=run.status,
                reason=run.reason,
                completed=run.completed,
                active_seconds=run.counters.get("active_seconds"),
            )
        )
        record = self._record
        copied = copied_examples(self._store, self._id) if self._known is None else record.copied
        if copied is not None:
            self._log.add(Copied(count=copied.count, candidates=copied.candidates, copies=copied.copies))
        if run.status in OVER and self._store.entries(self._id, COMMITMENT, 0, 1, largest=0):
            self._add_certificate(run)
        if self._known is not None:
            for message in record.warnings:
                self._log.add(RunWarning(at=None, message=message))
            self._log.add(summary_of(record, self._known.explained))
        elif self._replayed is not None and record.finished is not None:
            record.apply(record.finished.model_copy(update={"status": run.status, "reason": run.reason}))
            record.hosts = self._hosts(run)
            self._log.add(summary_of(record, explain(self._store, run)))

    def _hosts(self, run: StoredRun) -> dict[str, HostTotals]:
        try:
            return host_totals(Path(run.output)) if run.output is not None else {}
        except (OSError, ValueError) as error:
            self._log.add(RunWarning(at=None, message=f"the connections of sandboxes are not shown: {error}"))
            return {}

    def _add_certificate(self, run: StoredRun) -> None:
        names = (
            "none", "verdict", "statement", "candidate", "rows", "repeats", "seed", "best", "difference", "low", "high",
            "confidence", "p_value", "validation_estimate", "validation_low", "validation_high",
        )  # fmt: skip
        record = self._record
        if self._known is None:
            try:
                record.certificate = certify(self._store, run)
            except NoCertificate as error:
                record.no_certificate = str(error)
        found = record.certificate
        if found is None and record.no_certificate is None:
            return
        if found is None:
            self._log.add(CertificateFound(**{**dict.fromkeys(names), "none": record.no_certificate}))
            return
        test, validation = found.test, found.validation
        self._log.add(
            CertificateFound(
                none=None,
                verdict=found.verdict,
                statement=found.statement,
                candidate=found.candidate,
                rows=test.rows,
                repeats=test.repeats,
                seed=test.seed,
                best=test.best,
                difference=test.difference,
                low=test.low,
                high=test.high,
                confidence=test.confidence,
                p_value=test.p_value,
                validation_estimate=validation.estimate,
                validation_low=validation.low,
                validation_high=validation.high,
            )
        )
        leaks = found.leaks
        self._log.add(LeaksFound.model_validate({"type": "leaks", **leaks.model_dump()}))


def sent_text(text: str) -> SentText:
    """Return a text as events hold it."""
    if len(text) <= TEXT_SENT:
        return SentText(text=text)
    return SentText(text=text[:TEXT_BEGINNING], omitted=len(text) - TEXT_BEGINNING)


def _race(entry: Entry) -> Race:
    decision = orjson.loads(entry.answer)
    standings = [
        RaceStanding(**{name: found[name] for name in ("candidate", "compared", "mean", "bound", "drops")})
        for found in decision["proposals"]
    ]
    rows, block = decision["validation_rows"], len(decision["rows"])
    return Race(at=entry.number + 1, validation_rows=rows, rows=block, proposals=standings)


def _reflected(about: str) -> tuple[str | None, str | None]:
    """Return the component that an answer of reflection is for, and why it is the second answer if it is."""
    read = REFLECTION.fullmatch(about)
    return (str(ast.literal_eval(read["name"])), read["first"]) if read is not None else (None, None)


def _end_mark(run: StoredRun) -> tuple[str, str]:
    """Return what differs between two ends of a run."""
    return run.status, run.updated


def _forecast(run: StoredRun, now: dict[str, Any]) -> Forecast | None:
    """Return when the budget of metric calls ends at the present rate; None if it is not known."""
    budget, used, rate = run.counters.get("max_metric_calls"), run.counters.get("metric_calls"), now.get("rate")
    if not budget or used is None or not rate or now.get("phase") != "optimizing":
        return None
    left = max(0, budget - used)
    spent = run.counters.get("spent_usd") or 0.0
    priced = spent > 0 and used > 0 and not run.counters.get("unpriced")
    return Forecast(
        limit="max_metric_calls",
        seconds_left=left / rate,
        cost_usd=spent + left * spent / used if priced else None,
    )


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
