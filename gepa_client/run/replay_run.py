"""Replay a recorded run from its journal alone, and the events at the start and the end of any run."""

import os
from collections.abc import Callable

from evolverpc_common.display_text import plain
from evolverpc_common.redaction import Secrets
from gepa_client.analysis.copied_text import copied_examples
from gepa_client.analysis.failed_examples import failed_examples, retried_examples
from gepa_client.errors import JournalError
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.journal.buffer import RecordedStorage
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import SpendingTotals
from gepa_client.journal.run_events import Emit, Event, FailedExamples, Finished, ModelCalls, Sealed, Started, Warned
from gepa_client.journal.soundness import check_sound
from gepa_client.journal.store import Store, named_store
from gepa_client.run import output_folder as files
from gepa_client.run.control_messages import DriverJob
from gepa_client.run.event_writer import placed
from gepa_client.run.failures import stop_reason
from gepa_client.run.fingerprint import check_fingerprint, fingerprint_of
from gepa_client.run.gateway_record import REFUSALS_EMITTED, recorded_gateway_events
from gepa_client.run.initial_state import recorded_initial_state
from gepa_client.run.optimizer import Optimization
from gepa_client.run.resolved_settings import evolve_of
from gepa_client.run.run_counters import RunCounters
from gepa_client.run.strategies import sampled_rows
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.run_settings import TrackingSettings
from gepa_client.transport.event_loop import CancelToken


def replay_run(job: DriverJob, store: Store, emit: Emit, cancel_token: CancelToken) -> Finished:
    """Replay a recorded run, without any server or model.

    Raises:
        JournalError: the run was never started, or its journal is damaged. RunMismatch: the settings are other ones.
    """
    check_sound(store, job.run_id)
    run = store.run(job.run_id)
    storage = RecordedStorage(store, job.run_id)
    spend = SpendingTotals(store.spending(run.id))
    journal = Journal(
        run.id, storage, spend, cancel_token, Secrets(), replays=True, until=job.until, inherited=run.inherited
    )
    journal.store = named_store(job.store)
    given = {name: value for name, value in job.config.items() if name not in TrackingSettings.model_fields}
    config, own_emit = RunConfig(**given), emit  # experiment trackers have received it
    emit = placed(emit, journal)
    initial = recorded_initial_state(journal)
    if initial is None or run.identity is None:
        raise JournalError(f"run {run.id} was never started, so there is nothing to replay")
    found = fingerprint_of(config, initial.discovery, initial.seed_candidate, None, run.identity["data"])
    found |= {"scorer": run.identity["scorer"]}
    check_fingerprint(store, run, found)
    with RemoteAdapter(failure_score=config.failure_score, journal=journal, recorded=initial.discovery) as adapter:
        optimization = Optimization(config, job.output, emit, adapter, initial, RunCounters({}, spend))
        reflection = optimization.reflection()
        emit_started(emit, job, store, config, optimization, resumed=True)
        calls, refusals = recorded_gateway_events(store, run.id)
        if calls != ModelCalls():
            emit(calls)
        for refusal in refusals[:REFUSALS_EMITTED]:
            emit(refusal)
        finished = optimization.run(reflection)
    if job.until is None:
        emit_analyses(store, job.run_id, own_emit)
    return finished.model_copy(update={"active_seconds": run.counters.get("active_seconds")})


def emit_started(
    emit: Emit, job: DriverJob, store: Store, config: RunConfig, optimization: Optimization, *, resumed: bool
) -> None:
    """Emit what the run consists of, and write its settings beside its results."""
    if job.output is not None:
        files.write_json(job.output / files.CONFIG, config.recorded())
    initial = optimization.initial
    discovery = initial.discovery
    val = sampled_rows(config, initial.splits)
    emit(
        Started(
            run_id=job.run_id,
            store=store.url,
            resumed=resumed,
            url=", ".join(config.url) or config.repo or str(config.fleet),
            program=discovery.program.name,
            program_version=discovery.program.version,
            server=f"{discovery.server.name} {discovery.server.version}",
            language=discovery.server.language,
            components=list(discovery.program.seed_candidate),
            splits=initial.splits.sizes,
            training_only=initial.splits.training_only,
            sampled=len(val) if len(val) < len(initial.splits.val) else None,
            max_metric_calls=config.max_metric_calls,
            proposer=config.reflection_lm or "the program",
            evolve=evolve_of(config, discovery),
            config=config.recorded(),
            hash_seed=os.environ.get("PYTHONHASHSEED"),
        )
    )
    if (commitment := initial.commitment) is not None:
        emit(Sealed(rows=len(commitment.rows), digest=commitment.digest))


def emit_analyses(store: Store, run_id: str, emit: Emit) -> None:
    """Emit which examples failed, were tried again and were copied, if any; print those that failed into the log."""
    analyses: dict[str, Callable[[Store, str], Event | None]] = {
        "failed examples": failed_examples,
        "examples that were tried again": retried_examples,
        "copied examples": copied_examples,
    }
    for what, analysis in analyses.items():
        try:
            if (found := analysis(store, run_id)) is not None:
                emit(found)
            if isinstance(found, FailedExamples):
                _print_failures(found)
        except (JournalError, OSError) as error:
            emit(Warned(message=f"the record cannot be searched for {what}: {stop_reason(error)}"))


def _print_failures(found: FailedExamples) -> None:
    for group in found.groups:
        traceback = f"\n{group.traceback}" if group.traceback else ""
        log = f"\nthe program wrote:\n{group.log}" if group.log else ""
        print(
            plain(
                f"{group.count} examples failed with {group.type} ({group.status}) on {group.row_count} rows; "
                f"the first: row {group.row}, candidate {group.candidate}: {group.message}{traceback}{log}"
            ),
            flush=True,
        )
