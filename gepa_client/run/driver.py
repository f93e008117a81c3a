"""The driver: take the lease of a run, put its journal in front of GEPA, and record how the run ended."""

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from evolverpc_common.model_prices import PriceTable
from evolverpc_common.redaction import Secrets
from evolverpc_common.settings.sources import SettingsError
from gepa_client.certificate.evidence import search_noise
from gepa_client.errors import NO_ANSWER, ClientError, Interrupted, InterruptStatus, JournalError, StoreUnavailable
from gepa_client.evolution.candidate_names import component_texts
from gepa_client.fleet import FleetEvent
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.batch_evaluator import ExampleDone
from gepa_client.gepa.reflection_prompt import tokens_of
from gepa_client.gepa.rows import default_sample
from gepa_client.journal.buffer import JournalBuffer
from gepa_client.journal.entries import RESUMED_BY, SEARCH, STOP, StoredRun, now
from gepa_client.journal.history import selection_name
from gepa_client.journal.journal import Journal
from gepa_client.journal.lease import LeaseHeartbeat, take
from gepa_client.journal.requests import SpendingTotals
from gepa_client.journal.run_events import Emit, Finished, FleetChanged, Phase, Warned
from gepa_client.journal.soundness import check_sound
from gepa_client.journal.store import Store, named_store, open_store
from gepa_client.run import initial_state, splits
from gepa_client.run.control_messages import DriverJob
from gepa_client.run.event_writer import placed, progress_reported, record, redacting
from gepa_client.run.failures import finished_by, stop_reason
from gepa_client.run.fingerprint import changed_code, changed_data, check_fingerprint, fingerprint_of
from gepa_client.run.gateway_record import GatewayRecord
from gepa_client.run.initial_state import InitialState, seed_comparison
from gepa_client.run.optimizer import Optimization
from gepa_client.run.replay_run import emit_analyses, emit_started, replay_run
from gepa_client.run.resolved_settings import evolve_of, known_secrets, metric_call_budget, with_reflection_model
from gepa_client.run.run_counters import RunCounters
from gepa_client.run.score_export import score_export
from gepa_client.run.stops import BetweenExamples, FailureStop, held_calls_abandoned
from gepa_client.run.strategies import sampled_rows
from gepa_client.run.tie_break import final_rows
from gepa_client.settings.run_config import RunConfig
from gepa_client.steering.user_requests import PAUSE, WaitingRequests, record_stop
from gepa_client.transport.event_loop import CancelToken
from protocol import DiscoverResult
from protocol.errors import RpcError

OnDrainable = Callable[[], None]
"""Called when a stop must from now on let examples in flight, and then the record, be completed."""

TAKEN_OVER = "another process drives this run now; this one has released it and wrote nothing over its results"


def drive(
    job: DriverJob, emit: Emit, cancel_token: CancelToken, on_drainable: OnDrainable, gateway: GatewayRecord
) -> None:
    """Do the job; the last event is always `finished`. `gateway` receives the events of a gateway meanwhile."""
    finished: Finished | None = None
    try:
        secrets = Secrets(() if job.replays else known_secrets(RunConfig(**job.config), job.store))
        emit = redacting(secrets, emit)
        store = open_store(job.store)
        try:
            if job.replays:
                finished = replay_run(job, store, emit, cancel_token)
            else:
                finished = _DriverRun(job, store, emit, cancel_token, on_drainable, secrets, gateway).run()
        finally:
            on_drainable()
            store.close()
    except (Interrupted, OSError, SettingsError, ClientError, RpcError) as error:
        finished = _ended(finished, error, emit)
    emit(finished)


def _ended(finished: Finished | None, error: BaseException, emit: Emit) -> Finished:
    """Return how a run ended; warn of an error that came after its end."""
    if finished is None:
        return finished_by(error)
    emit(Warned(message=f"an error after the end of the run, whose results are complete: {stop_reason(error)}"))
    return finished


@dataclass
class _DriverRun:
    job: DriverJob
    store: Store
    emit: Emit
    cancel_token: CancelToken
    on_drainable: OnDrainable
    secrets: Secrets
    gateway: GatewayRecord

    def __post_init__(self) -> None:
        self.config = RunConfig(**self.job.config)

    def run(self) -> Finished:
        """Take the lease, drive the run, write its status and release the lease."""
        job, config = self.job, self.config
        recorded_lease_s = self.store.run(job.run_id).config.get("lease_s") or 0.0
        take(
            self.store,
            job.run_id,
            owner=job.owner,
            driver=f"pid {os.getpid()} on {socket.gethostname()}",
            lease_s=max(config.lease_s, recorded_lease_s),  # the present driver may renew its lease more slowly
            on_wait=lambda driver, seconds: self.emit(
                Warned(message=f"the run was driven by {driver}; waiting {seconds:g} s for a sign of life")
            ),
        )
        run = self.store.run(job.run_id)
        resumed = run.identity is not None
        if not resumed and run.parent is None:  # else its prompts stay as they were recorded
            self.config = config = with_reflection_model(config)
        before = {"status": run.status, "reason": run.reason, "config": run.config, "completed": run.completed}
        if run.status == "running":  # its driver is dead
            before |= {"status": "paused", "reason": "its driver gave no sign of life any more"}
        spend = SpendingTotals(self.store.spending(job.run_id))
        counters = RunCounters(run.counters, spend)
        self.emit = redacting(self.secrets, counters.observed(self.emit))  # what is noted is stored
        finished: Finished | None = None
        try:
            self._check_stops(run)
            self._mark_running(run, counters)
            with LeaseHeartbeat(
                self.store,
                job.run_id,
                job.owner,
                config.lease_s,
                counters.changes,
                lambda action: self.cancel_token.cancel(_requested(action)),
                lambda error: self.cancel_token.cancel(Interrupted("paused", stop_reason(error), infrastructure=True)),
            ):
                finished = self._with_journal(run, spend, counters, resumed=resumed)
        except (Interrupted, OSError) as error:
            finished = _ended(finished, error, self.emit)
        except (SettingsError, ClientError, RpcError) as error:
            ended = finished_by(error).status
            status = {"status": ended if ended == "paused" else "failed", "reason": stop_reason(error)}
            self._release(counters, **(before if resumed else status))
            raise
        if self._is_taken_over():
            return Finished(status="refused", reason=TAKEN_OVER, infrastructure=True, metric_calls=0)
        try:
            record_stop(self.store, job.run_id, job.owner, finished.status)
        except JournalError as error:
            self.emit(Warned(message=f"the requests to the run could not be answered: {stop_reason(error)}"))
        self._release(counters, status=finished.status, reason=finished.reason)
        emit_analyses(self.store, job.run_id, self.emit)
        return finished.model_copy(update={"active_seconds": round(counters.active_seconds, 3)})

    def _is_taken_over(self) -> bool:
        """Return whether another process drives the run now; False if the store is unavailable."""
        try:
            return self.store.run(self.job.run_id).claim.owner != self.job.owner
        except StoreUnavailable:
            return False

    def _check_owned(self) -> None:
        if self._is_taken_over():
            raise Interrupted("paused", TAKEN_OVER, infrastructure=True)

    def _check_stops(self, run: StoredRun) -> None:
        """Stop if a user asked for it since this command began, while it waited for the lease.

        Another process that held the lease in between may have taken the request: it applies to this one too. What was
        asked for before is over.
        """
        for at, asked in enumerate(self.store.requests(run.id)):
            if asked.stops is None or asked.outcome == "refused":
                continue
            if at >= self.job.seen_requests:
                raise _requested(asked.stops)
            self.store.answer_request(run.id, asked.id, "refused", reason="the run was resumed after it")

    def _mark_running(self, run: StoredRun, counters: RunCounters) -> None:
        counters.set(max_metric_calls=self.config.max_metric_calls)
        changes = {
            "status": "running",
            "reason": None,
            "config": self._recorded(run),
            "started": run.started or now(),
        }
        # a fork, or an imported run, has no folder until it is driven here
        folder = {} if run.output or self.job.output is None else {"output": str(self.job.output)}
        self.store.update(run.id, {**changes, **folder, **counters.changes()}, owner=self.job.owner)

    def _release(self, counters: RunCounters, **last: Any) -> None:
        """Write the last state and release the lease; warn if another process has it, or the store is unavailable."""
        self.on_drainable()
        counters.end()
        if last["reason"] is not None:
            last["reason"] = self.secrets.redact_text(last["reason"])
        try:
            self.store.update(self.job.run_id, {**counters.changes(), **last}, owner=self.job.owner)
            self.store.release(self.job.run_id, self.job.owner)
        except JournalError as error:
            self.emit(Warned(message=f"the run's last state could not be written: {stop_reason(error)}"))

    # --- with the lease ----------------------------------------------------------------------------------------------

    def _with_journal(self, run: StoredRun, spend: SpendingTotals, counters: RunCounters, *, resumed: bool) -> Finished:
        if resumed:
            check_sound(self.store, run.id)
        store_name, metered = named_store(self.job.store), self.job.gateway
        buffer = JournalBuffer(self.store, run.id, self.job.owner, self.cancel_token.cancel)
        journal = Journal(
            run.id, buffer, spend, self.cancel_token, self.secrets, inherited=run.inherited, metered=metered
        )
        journal.store = store_name
        export = score_export(self.store, run.id, self.secrets, self.emit)
        self.emit = placed(self.emit if export is None else export.observing(self.emit), journal)
        failure_stop = FailureStop(self.config.failure_stop, self.cancel_token)

        def example_done(example: ExampleDone) -> None:
            counters.example_done(example)
            failure_stop.done(example)
            if export is not None:
                export.example_done(example)

        self.emit(Phase(phase="connecting"))
        try:
            with (
                self._adapter(journal, example_done) as adapter,
                progress_reported(adapter, self.emit, self.gateway),
                held_calls_abandoned(adapter, self.gateway) as abandon_held_calls,
                BetweenExamples(
                    self.config, journal, counters, abandon_held_calls if metered else lambda: None
                ) as between_examples,
            ):
                counters.endpoints = lambda: adapter.fleet.endpoints
                self.gateway.begin(journal, self.store, self.emit, between_examples.capped)
                if not resumed and self.config.sample and self.config.race_rows is None:
                    self._change_settings(run, validation=self.config.sampled_on(default_sample(adapter.slots)))
                initial = self._initial_state(run, journal, adapter)
                self._resolve_budget(run, initial, counters)
                if self.config.sample and self.config.race_final_rows is None:  # a later budget keeps it
                    compared = final_rows(self.config, initial.splits)
                    self._change_settings(run, validation=self.config.sampled_on(self.config.sample, compared))
                failure_stop.begin(evolve_of(self.config, initial.discovery))
                optimization = Optimization(
                    self.config,
                    self.job.output,
                    self.emit,
                    adapter,
                    initial,
                    counters,
                    self._check_owned,
                    self.gateway.settle if metered else lambda: None,
                    lambda: search_noise(self.store, run),
                    WaitingRequests(self.store, run.id),
                    lambda limits: self._set_limits(limits, run, counters, between_examples),
                )
                reflection = optimization.reflection()
                emit_started(self.emit, self.job, self.store, self.config, optimization, resumed=resumed)
                self.on_drainable()
                finished = optimization.run(reflection)
                try:
                    record(finished.model_copy(update={"at": journal.next_number}), journal)
                except Interrupted as lost:
                    self.emit(Warned(message=f"how the run ended is not recorded: {lost.reason}"))
                return finished
        finally:
            self.on_drainable()
            self.gateway.end()
            buffer.close()
            if export is not None:
                export.close()

    def _adapter(self, journal: Journal, on_example: Callable[[ExampleDone], None]) -> RemoteAdapter:
        config = self.config
        one_server = len(config.url) == 1 and config.fleet is None

        def on_fleet(event: FleetEvent) -> None:
            if event.kind == "waiting" and NO_ANSWER in event.detail and self.job.terminal is not None:
                os.write(self.job.terminal, f"\n{self.job.if_blocked}\n".encode())
            if event.about_scores:
                self.emit(Warned(message=f"{event.url}: {event.detail}"))
            elif not (one_server and event.kind == "joined"):
                self.emit(FleetChanged(kind=event.kind, url=event.url, detail=event.detail, after=event.seconds))

        def used_splits(discovery: DiscoverResult) -> list[str]:
            held = {name: info.size for name, info in discovery.datasets.items()}
            return [name for name in splits.sources(config, held).values() if isinstance(name, str) and name in held]

        return RemoteAdapter(
            config.url,
            fleet_file=config.fleet,
            token_file=config.token_file,
            allow_insecure=config.allow_insecure,
            failure_score=config.failure_score,
            concurrency=config.concurrency,
            example_timeout_s=config.example_timeout_s,
            score_with=config.score_with,
            on_example=on_example,
            on_fleet=on_fleet,
            splits=used_splits,
            allow_mixed_programs=config.allow_mixed_programs,
            prices=PriceTable(config.model_prices or {}),
            seed=config.seed,
            journal=journal,
        )

    def _initial_state(self, run: StoredRun, journal: Journal, adapter: RemoteAdapter) -> InitialState:
        """Return the run's initial state, after checking that the program and the rows are the recorded ones."""
        before = initial_state.recorded_initial_state(journal)
        if before is None:
            initial = initial_state.record_initial_state(journal, self.config, adapter)
        else:
            recorded_data = (run.identity or {}).get("data", {})
            initial = initial_state.resume_initial_state(self.config, adapter, before, recorded_data)
        scorer = adapter.scorers.discovery if adapter.scorers is not None else None
        seed = orjson.loads(self.secrets.written(initial.discovery.program.seed_candidate))
        found = fingerprint_of(self.config, initial.discovery, seed, scorer, initial.data)
        described = {"program": initial.discovery.program.name}
        if run.identity is None:
            self.store.update(run.id, {"identity": found, **described}, owner=self.job.owner)
        else:
            recorded = (before or initial).discovery.program
            check_fingerprint(self.store, run, found, changed_code(recorded, initial.discovery.program))
            self.store.update(run.id, described, owner=self.job.owner)
            self.store.drop(run.id, SEARCH, STOP)  # the run continues from before the stop that ended it
            for message in changed_data(recorded, initial.discovery.program):
                self.emit(Warned(message=message))
        self._warn(initial)
        comparison = seed_comparison(self.store, journal, self.config, adapter, initial)
        adapter.wait_for(adapter.fleet.compare(comparison, None if before is None else before.discovery))
        return initial

    def _warn(self, initial: InitialState) -> None:
        """Warn about rows, the budget, and a program whose changes would go unnoticed."""
        messages = splits.warnings(initial.splits, self.config)
        budget, rows = self.config.max_metric_calls, len(sampled_rows(self.config, initial.splits))
        named = f"{rows} {selection_name(training_only=initial.splits.training_only)} rows"
        if budget is not None and budget <= rows:
            messages.append(
                f"max_metric_calls is {budget}, and scoring the seed on {named} uses it up: no candidate will be tried"
            )
        limit = self.config.max_component_tokens
        messages += [
            f"component {name} of the seed has about {tokens_of(text):,} tokens, more than the {limit:,} of "
            "max_component_tokens: its new texts must be shorter"
            for name, text in component_texts(initial.seed_candidate).items()
            if limit is not None and tokens_of(text) > limit
        ]
        messages += [f"{path} is gone: the run continues with the rows that it recorded" for path in initial.missing]
        if initial.discovery.program.version is None and initial.discovery.program.digest is None:
            messages.append("the program declares no version, so a change to it between two starts would go unnoticed")
        for message in messages:
            self.emit(Warned(message=message))

    def _resolve_budget(self, run: StoredRun, initial: InitialState, counters: RunCounters) -> None:
        """Turn `auto` into a number of metric calls, and record it."""
        if self.config.auto is None:
            return
        rows = initial.splits
        calls = metric_call_budget(
            self.config,
            texts=len(component_texts(initial.seed_candidate)),
            train=len(rows.train),
            val=len(rows.val) if rows.val is not rows.train else None,
        )
        done = run.counters.get("metric_calls", 0)
        if (calls or 0) < done:
            raise SettingsError(
                f"the budget comes to {calls:,} metric calls, less than the {done:,} that are "
                f"recorded of run {run.id}: give `max_metric_calls` {done} or more"
            )
        self._change_settings(run, auto=None, max_metric_calls=calls)
        counters.set(max_metric_calls=calls)

    def _set_limits(
        self, limits: Mapping[str, float], run: StoredRun, counters: RunCounters, between_examples: BetweenExamples
    ) -> None:
        """Record and apply the limits that a user sets."""
        self._change_settings(run, **limits)
        counters.set(max_metric_calls=self.config.max_metric_calls)
        between_examples.set_limits(self.config)

    def _change_settings(self, run: StoredRun, **settings: Any) -> None:
        self.config = self.config.model_copy(update=settings)
        self.store.update(run.id, {"config": self._recorded(run)}, owner=self.job.owner)

    def _recorded(self, run: StoredRun) -> dict[str, Any]:
        """Return the settings for the record, with who continues the run."""
        return self.config.recorded() | {key: run.config[key] for key in (RESUMED_BY,) if key in run.config}


def _requested(action: str) -> Interrupted:
    status: InterruptStatus = "paused" if action == PAUSE else "cancelled"
    return Interrupted(status, "on request")
