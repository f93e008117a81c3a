"""Drives a recorded run: claims it, puts its journal in front, and leaves its record as it ended."""

import os
import socket
from collections.abc import Callable
from typing import Any

import orjson

from evolverpc_common.display_text import plain
from evolverpc_common.model_prices import PriceTable
from evolverpc_common.redaction import Secrets
from evolverpc_common.settings.sources import SettingsError
from gepa_client.analysis.failed_examples import failed_examples
from gepa_client.errors import ClientError, ConnectionLost, Interrupted, JournalError, StoreUnavailable
from gepa_client.evolution.labels import texts_of
from gepa_client.fleet import FleetEvent
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.batch_evaluator import ExampleDone
from gepa_client.journal.buffer import StoredTape
from gepa_client.journal.entries import SEARCH, STOP, StoredRun
from gepa_client.journal.history import end_of
from gepa_client.journal.journal import Journal
from gepa_client.journal.lease import Heartbeat, take
from gepa_client.journal.run_events import CallRefused, Emit, Finished, FleetChanged, ModelCalls, Phase, Started, Warned
from gepa_client.journal.soundness import check_sound
from gepa_client.journal.store import Store
from gepa_client.journal.store_factory import named_store, open_store
from gepa_client.journal.usage import Spend
from gepa_client.run import initial_state as beginnings
from gepa_client.run import output_folder as files
from gepa_client.run import splits as rows_of
from gepa_client.run.control_messages import DriverJob
from gepa_client.run.event_writer import redacting
from gepa_client.run.fingerprint import RunMismatch, check_fingerprint, fingerprint_of
from gepa_client.run.gateway_record import REFUSALS_TOLD, GatewayRecord, recorded_gateway_events
from gepa_client.run.initial_state import InitialState
from gepa_client.run.named_endpoints import known_secrets
from gepa_client.run.optimizer import Optimization, error_details, stop_reason
from gepa_client.run.os_errors import stop_for
from gepa_client.run.progress import ProgressReporter, RunCounters
from gepa_client.run.resolved_settings import evolve_of, with_resolved_budget
from gepa_client.run.stop_conditions import BetweenExamples, FailureStop, HeldCallAbandoner
from gepa_client.settings.groups import TrackingSettings
from gepa_client.settings.run_config import RunConfig
from gepa_client.transport.cancel_token import Halt
from gepa_client.transport.error_format import details
from protocol import DiscoverResult
from protocol.errors import ProgramFailed, RpcError

Drainable = Callable[[], None]
"""Told when a stop must let the work come to its end: what is in flight, and then the record."""


def drive(job: DriverJob, emit: Emit, halt: Halt, drainable: Drainable, gateway: GatewayRecord) -> None:
    """Do what the job says; the last event is always `finished`. `gateway`: hears of what a gateway does meanwhile."""
    finished: Finished | None = None
    try:
        secrets = Secrets() if job.replays else Secrets(known_secrets(RunConfig(**job.config), job.store))
        emit = redacting(secrets, emit)
        store = open_store(job.store)
        try:
            if job.replays:
                finished = _replay(job, store, emit, halt)
            else:
                finished = _DriverRun(job, store, emit, halt, drainable, secrets, gateway).go()
        finally:
            drainable()
            store.close()
    except Interrupted as interrupted:
        finished = finished or _interrupted(interrupted)
    except OSError as error:
        finished = _ended_by(error)
    except (SettingsError, ClientError, RpcError) as error:
        finished = _not_begun(error)
    emit(finished)


def _interrupted(interrupted: Interrupted) -> Finished:
    return Finished(status=interrupted.status, reason=interrupted.reason, metric_calls=0)


def _not_begun(error: Exception) -> Finished:
    """How a run ends that could not even begin: paused where trying later can help, else refused.

    A program that fails by itself has failed, and says more of it.
    """
    if isinstance(error, ProgramFailed):
        return Finished(status="failed", reason=stop_reason(error), details=error_details(error), metric_calls=0)
    later = isinstance(error, ConnectionLost | StoreUnavailable) or (isinstance(error, RpcError) and error.retryable)
    return Finished(status="paused" if later else "refused", reason=stop_reason(error), metric_calls=0)


def _ended_by(error: OSError) -> Finished:
    stop = stop_for(error)
    if stop.status == "paused":
        return _interrupted(stop)
    return Finished(status="failed", reason=stop_reason(error), details=details(error), metric_calls=0)


TAKEN_OVER = "another process drives this run now; this one has let go of it and wrote nothing over its results"


class _DriverRun:
    def __init__(
        self,
        job: DriverJob,
        store: Store,
        emit: Emit,
        halt: Halt,
        drainable: Drainable,
        secrets: Secrets,
        gateway: GatewayRecord,
    ) -> None:
        self.job = job
        self.gateway = gateway
        self.store = store
        self.emit = emit
        self.halt = halt
        self.drainable = drainable
        self.config = RunConfig(**job.config)
        self.secrets = secrets

    def go(self) -> Finished:
        """Claim the run, drive it, and let go of it with its status written."""
        job, config = self.job, self.config
        recorded_lease_s = self.store.run(job.run_id).config.get("lease_s") or 0.0
        take(
            self.store,
            job.run_id,
            owner=job.owner,
            driver=f"pid {os.getpid()} on {socket.gethostname()}",
            lease_s=max(config.lease_s, recorded_lease_s),  # whoever drives it may be slower to show itself
            on_wait=lambda driver, seconds: self.emit(
                Warned(message=f"the run was driven by {driver}; waiting {seconds:g} s for a sign of life")
            ),
        )
        run = self.store.run(job.run_id)
        resumed = run.identity is not None
        before = {"status": run.status, "reason": run.reason, "config": run.config}
        if run.status == "running":  # whoever drove it is dead
            before |= {"status": "paused", "reason": "whoever drove it gave no sign of life any more"}
        spend = Spend(self.store.spending(job.run_id))
        counters = RunCounters(run.counters, spend)
        finished: Finished | None = None
        try:
            self._heed(run)
            self._mark_running(run, counters)
            with Heartbeat(self.store, job.run_id, job.owner, config.lease_s, counters.changes, self._wish, self._lost):
                finished = self._with_journal(run, spend, counters, resumed=resumed)
        except Interrupted as interrupted:
            finished = finished or _interrupted(interrupted)
        except OSError as error:
            finished = _ended_by(error)
        except RunMismatch:
            self._leave(counters, **before)
            raise
        except (SettingsError, ClientError, RpcError) as error:
            ended = _not_begun(error).status
            status = {"status": ended if ended == "paused" else "failed", "reason": stop_reason(error)}
            self._leave(counters, **(before if resumed else status))
            raise
        if self._is_taken():
            return Finished(status="refused", reason=TAKEN_OVER, metric_calls=0)
        over = {"wish": None} if finished.status == "cancelled" else {}
        self._leave(counters, status=finished.status, reason=finished.reason, **over)
        emit_failed_examples(self.store, job.run_id, self.emit)
        return finished.model_copy(update={"active_seconds": round(counters.active_seconds, 3)})

    def _is_taken(self) -> bool:
        """Whether another process drives the run now; one whose store is away is taken for ours."""
        try:
            return self.store.run(self.job.run_id).claim.owner != self.job.owner
        except StoreUnavailable:
            return False

    def _owned(self) -> None:
        if self._is_taken():
            raise Interrupted("paused", TAKEN_OVER)

    def _heed(self, run: StoredRun) -> None:
        """Stop at once where somebody asked for it since this command began: while the claim was waited for.

        A claim that grew by more than our taking it was somebody else's in between: who cancelled then, meant us.
        """
        if run.status == "cancelled" and run.claim.beat > self.job.seen_beat + 1:
            raise _requested("cancel")
        if run.wish is not None and run.wish != self.job.wish:
            raise _requested(run.wish)

    def _mark_running(self, run: StoredRun, counters: RunCounters) -> None:
        """Say that the run goes on."""
        budget = {"max_metric_calls": self.config.max_metric_calls}
        counters.set(**budget)
        changes = {"status": "running", "reason": None, "config": self.config.recorded()}
        over = {"wish": None} if run.wish is not None else {}  # one that comes now is heard by the heartbeat
        # a fork, or a run from elsewhere, has no folder until it is driven here
        folder = {} if run.output or self.job.output is None else {"output": str(self.job.output)}
        self.store.update(run.id, {**changes, **over, **folder, **counters.changes()}, owner=self.job.owner)

    def _leave(self, counters: RunCounters, **last: Any) -> None:
        """Write the last of it and let go; say so where the run is somebody else's by now, or the store is gone."""
        self.drainable()
        if last["reason"] is not None:
            last["reason"] = self.secrets.redact_text(last["reason"])
        try:
            self.store.update(self.job.run_id, {**counters.changes(), **last}, owner=self.job.owner)
            self.store.release(self.job.run_id, self.job.owner)
        except JournalError as error:
            self.emit(Warned(message=f"the run's last state could not be written: {stop_reason(error)}"))

    def _wish(self, wish: str) -> None:
        self.halt.pull(_requested(wish))

    def _lost(self, error: JournalError) -> None:
        self.halt.pull(Interrupted("paused", stop_reason(error)))

    # --- with everything in place ------------------------------------------------------------------------------------

    def _with_journal(self, run: StoredRun, spend: Spend, counters: RunCounters, *, resumed: bool) -> Finished:
        if resumed:
            check_sound(self.store, run.id)
        tape = StoredTape(self.store, run.id, self.job.owner, self.halt.pull)
        journal = Journal(
            run.id, tape, spend, self.halt, self.secrets, inherited=_inherited(run), metered=self.job.gateway
        )
        journal.store = named_store(self.job.store)
        failure_stop = FailureStop(run.id, named_store(self.job.store), self.config.failure_stop, self.halt)
        self.emit(Phase(phase="connecting"))
        try:
            with (
                self._adapter(journal, failure_stop.done) as adapter,
                ProgressReporter(adapter, self.emit, self.gateway),
                HeldCallAbandoner(adapter, self.gateway) as abandoning,
                BetweenExamples(
                    self.config, journal, counters, abandoning.spent if self.job.gateway else lambda: None
                ) as between,
            ):
                self.gateway.begin(journal, self.store, self.emit)
                self.gateway.when_capped(between.capped)
                beginning = self._begin(run, journal, adapter)
                self._resolve_budget(run, beginning, counters)
                failure_stop.begin(evolve_of(self.config, beginning.discovery))
                kept = {candidate.index: candidate for candidate in self.store.candidates(run.id)}
                optimization = Optimization(
                    self.config,
                    self.job.output,
                    self.emit,
                    adapter,
                    beginning,
                    counters,
                    kept,
                    self._owned,
                    self.gateway.settle if self.job.gateway else lambda: None,
                )
                reflection = optimization.reflection()
                emit_started(self.emit, self.job, self.store, self.config, optimization, resumed=resumed)
                self.drainable()
                return optimization.go(reflection)
        finally:
            self.drainable()
            self.gateway.end()
            tape.close()

    def _adapter(self, journal: Journal, on_example: Callable[[ExampleDone], None]) -> RemoteAdapter:
        config = self.config

        one_server = len(config.url) == 1 and config.fleet is None

        def tell(event: FleetEvent) -> None:
            if one_server and event.kind == "joined":
                return  # nobody needs to be told of the only one
            self.emit(FleetChanged(kind=event.kind, url=event.url, detail=event.detail, after=event.seconds))

        def used(discovery: DiscoverResult) -> list[str]:
            held = {name: info.size for name, info in discovery.datasets.items()}
            return [name for name in rows_of.sources(config, held).values() if name in held]

        return RemoteAdapter(
            config.url,
            fleet_file=config.fleet,
            token_file=config.token_file,
            allow_insecure=config.allow_insecure,
            failure_score=config.failure_score,
            max_attempts=config.max_attempts,
            max_outage_s=config.max_outage_s,
            score_with=config.score_with,
            score_token_file=config.score_token_file,
            on_example=on_example,
            on_fleet=tell,
            splits=used,
            allow_mixed_programs=config.allow_mixed_programs,
            prices=PriceTable(config.model_prices or {}),
            journal=journal,
        )

    def _begin(self, run: StoredRun, journal: Journal, adapter: RemoteAdapter) -> InitialState:
        """The run's rows, and that they and everything else are those it was recorded with."""
        before = beginnings.recorded_initial_state(journal)
        if before is None:
            beginning = beginnings.record_initial_state(journal, self.config, adapter)
        else:
            beginning = beginnings.resume_initial_state(
                self.config, adapter, before, (run.identity or {}).get("data", {})
            )
        scorer = adapter.scorers.discovery if adapter.scorers is not None else None
        seed = orjson.loads(self.secrets.written(beginning.discovery.program.seed_candidate))
        found = fingerprint_of(self.config, beginning.discovery, seed, scorer, beginning.data)
        if run.identity is None:
            self.store.update(run.id, {"identity": found}, owner=self.job.owner)
        else:
            end = end_of(self.store, run.id, SEARCH)
            check_fingerprint(run.id, named_store(self.job.store), run.identity, found, end)
            self.store.drop(run.id, SEARCH, STOP)  # it goes on from before whatever had ended it
        for message in [*rows_of.warnings(beginning.splits), *budget_warnings(self.config, beginning)]:
            self.emit(Warned(message=message))
        for path in beginning.missing:
            self.emit(Warned(message=f"{path} is gone: the run goes on with the rows it recorded"))
        if beginning.discovery.program.version is None and beginning.discovery.program.digest is None:
            self.emit(
                Warned(
                    message="the program declares no version, so a change to it between two starts would go unnoticed"
                )
            )
        return beginning

    def _resolve_budget(self, run: StoredRun, beginning: InitialState, counters: RunCounters) -> None:
        """Turn a budget in words into a number of metric calls, which is what the record keeps."""
        if self.config.auto is None and self.config.max_full_evals is None:
            return
        rows = beginning.splits
        config = with_resolved_budget(
            self.config,
            texts=len(texts_of(beginning.seed_candidate)),
            train=len(rows.train),
            val=len(rows.val) if rows.val is not rows.train else None,
        )
        done = run.counters.get("metric_calls", 0)
        if (config.max_metric_calls or 0) < done:
            raise SettingsError(
                f"the budget comes to {config.max_metric_calls:,} metric calls, less than the {done:,} that are "
                f"recorded of run {run.id}: give --max-metric-calls {done} or more"
            )
        self.config = config
        counters.set(max_metric_calls=config.max_metric_calls)
        self.store.update(run.id, {"config": config.recorded()}, owner=self.job.owner)


def _inherited(run: StoredRun) -> int:
    """How many of its numbers a fork has from the run it comes from."""
    at = (run.parent or {}).get("at")
    return at if isinstance(at, int) else 0


def _requested(wish: str) -> Interrupted:
    return Interrupted("cancelled", f"somebody asked to {wish} the run")


def _replay(job: DriverJob, store: Store, emit: Emit, halt: Halt) -> Finished:
    """Tell a recorded run again, from its record alone."""
    run = store.run(job.run_id)
    check_sound(store, run.id)
    # a tracker has heard of the run once
    config = RunConfig(**{key: value for key, value in job.config.items() if key not in TrackingSettings.model_fields})
    tape = StoredTape(store, run.id, job.owner, halt.pull, reads_only=True)
    spend = Spend(store.spending(run.id))
    journal = Journal(run.id, tape, spend, halt, Secrets(), replays=True, until=job.until, inherited=_inherited(run))
    journal.store = named_store(job.store)
    beginning = beginnings.recorded_initial_state(journal)
    if beginning is None or run.identity is None:
        raise JournalError(f"run {run.id} was never started, so there is nothing to replay")
    scorer = run.identity["scorer"]
    found = fingerprint_of(config, beginning.discovery, beginning.seed_candidate, None, run.identity["data"]) | {
        "scorer": scorer
    }
    check_fingerprint(run.id, named_store(job.store), run.identity, found, end_of(store, run.id, SEARCH))
    with RemoteAdapter(failure_score=config.failure_score, journal=journal, recorded=beginning.discovery) as adapter:
        optimization = Optimization(config, job.output, emit, adapter, beginning, RunCounters({}, spend))
        reflection = optimization.reflection()
        emit_started(emit, job, store, config, optimization, resumed=True)
        for told in _of_gateway(store, run.id):
            emit(told)
        finished = optimization.go(reflection)
        if job.until is None:
            emit_failed_examples(store, run.id, emit)
        return finished.model_copy(update={"active_seconds": run.counters.get("active_seconds")})


def emit_failed_examples(store: Store, run_id: str, emit: Emit) -> None:
    """Emit the examples that failed in the program, and print them into the log; nothing if none failed."""
    try:
        found = failed_examples(store, run_id)
        if found is None:
            return
        emit(found)
        for group in found.groups:
            traceback = f"\n{group.traceback}" if group.traceback else ""
            print(
                plain(
                    f"{group.count} examples failed with {group.type} ({group.status}) on {group.row_count} rows; "
                    f"the first: row {group.row}, candidate {group.candidate}: {group.message}{traceback}"
                ),
                flush=True,
            )
    except (JournalError, OSError) as error:
        emit(Warned(message=f"the failed examples could not be reported: {stop_reason(error)}"))


def _of_gateway(store: Store, run_id: str) -> list[ModelCalls | CallRefused]:
    calls, refusals = recorded_gateway_events(store, run_id)
    return [*([calls] if calls != ModelCalls() else []), *refusals[:REFUSALS_TOLD]]


def budget_warnings(config: RunConfig, beginning: InitialState) -> list[str]:
    """What the reader should know of the budget beside these rows."""
    budget, rows = config.max_metric_calls, len(beginning.splits.val)
    if budget is not None and budget <= rows:
        return [
            f"max_metric_calls is {budget}, and scoring the seed on {rows} validation rows uses it up: "
            "no candidate will be tried"
        ]
    return []


def emit_started(
    emit: Emit, job: DriverJob, store: Store, config: RunConfig, optimization: Optimization, *, resumed: bool
) -> None:
    """Tell what the run consists of, and write its settings beside its results."""
    if job.output is not None:
        files.write_json(job.output / files.CONFIG, config.recorded())
    discovery = optimization.beginning.discovery
    emit(
        Started(
            run_id=job.run_id,
            store=store.url,
            resumed=resumed,
            url=", ".join(config.url) or config.repo or str(config.fleet),
            program=discovery.program.name,
            program_version=discovery.program.version,
            server=f"{discovery.server.name} {discovery.server.version} ({discovery.server.language})",
            components=list(discovery.program.seed_candidate),
            splits=optimization.beginning.splits.sizes,
            max_metric_calls=config.max_metric_calls,
            proposer=optimization.proposer,
            evolve=evolve_of(config, discovery),
            config=config.recorded(),
            hash_seed=os.environ.get("PYTHONHASHSEED"),
        )
    )
