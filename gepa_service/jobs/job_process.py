"""Carry out a job: sandboxes from its repository, a check, then its run in a driver process that is kept apart."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from evolverpc_common.settings.sources import SettingsError
from gepa_client.check.preflight import preflight
from gepa_client.check.server_check import check_server
from gepa_client.cli.commands.foreground_run import ForegroundRun
from gepa_client.cli.commands.resume import continued
from gepa_client.cli.flags import EXAMPLES
from gepa_client.cli.views.console import make_console
from gepa_client.cli.views.live_display import JsonDisplay
from gepa_client.errors import ClientError, NoSuchRun, RunExists, StoreUnavailable, summary
from gepa_client.journal import run_events
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.http_store import HttpStore
from gepa_client.journal.requests import SpendingTotals
from gepa_client.journal.store import Store
from gepa_client.report.record import RunRecord
from gepa_client.run import output_folder as files
from gepa_client.sandboxing import session as sessions
from gepa_client.sandboxing.session_interface import Log
from gepa_client.sandboxing.setup import open_setup
from gepa_client.settings.loading import from_record
from gepa_client.settings.run_config import RunConfig
from gepa_client.transport.event_loop import run_to_end
from gepa_service.jobs.check_lines import check_lines
from gepa_service.jobs.driver_place import DriverPlace, place_for
from gepa_service.jobs.job_order import Ended, JobOrder
from protocol.errors import RpcError

INTERRUPTIONS = (
    "another process drives",
    "no sign of life",
    "the journal cannot be written",
    "the driver process",
    "the sandboxes are lost",
    "the service refuses the token",
    "the service does not answer",
    "is unavailable: ",
    "no sandbox is running",
)
"""How the reasons of pauses begin that come from the machines and not from the run."""

LARGEST_ARTIFACT = 4 << 20
MOST_ARTIFACTS = 20


def carry_out(order: JobOrder) -> Ended:
    """Run the job to its end, or until it is stopped, and return how it ended."""
    store = HttpStore(order.api, token_file=order.token_file)
    try:
        return _carried_out(order, store)
    except KeyboardInterrupt:
        return Ended(status="interrupted", reason="stopped")
    except StoreUnavailable as error:
        return Ended(status="interrupted", reason=str(error))
    except (SettingsError, ClientError, RpcError, OSError) as error:
        return _failed("run", summary(error))
    finally:
        store.close()


def _carried_out(order: JobOrder, store: Store) -> Ended:
    run = _known_run(store, order.run_id)
    if run is not None and run.status in ("completed", "cancelled", "failed"):
        return _ended_as(run.status, run.reason, order.folder / "results")
    settings = _settings(order, run)
    spent = 0.0 if run is None else SpendingTotals(store.spending(run.id)).cost_usd
    session = sessions.SandboxSession(settings, order.run_id, open_setup, size=settings.sandboxes)
    with sessions.signals_interrupt():
        try:
            try:
                session.start(_print, lambda _text: None, spent_usd=spent)
            except sessions.SessionNotStarted as error:
                return _failed("sandbox", str(error))
            if run is None and (failure := _check(session)) is not None:
                return failure
            with place_for(order, session) as place:
                return _driven(order, store, run, place)
        finally:
            session.close()


def _driven(order: JobOrder, store: Store, run: StoredRun | None, place: DriverPlace) -> Ended:
    settings = place.sandboxes.settings
    output = files.open_again(order.folder / "results")
    files.remove_reports(output)
    if run is None:
        run = StoredRun(id=order.run_id, name=settings.name, config=settings.recorded(), output=str(output))
        with contextlib.suppress(RunExists):  # by a request whose response was lost
            store.create(run)
    place.give(output)
    ended = ForegroundRun(
        settings=settings,
        store=order.api,
        store_typed=None,
        run_id=order.run_id,
        output=output,
        json_events=True,
        console=make_console(stderr=True),
        sandboxes=place.sandboxes,
        display=_Quiet(),
        launch=place.launch,
        driver_store=place.store,
        **continued(run),
    ).run()
    finished = ended.finished
    if ended.by_hand:
        return (
            Ended(status="interrupted", reason="stopped") if finished.status == "paused" else _ended(finished, output)
        )
    return _ended(finished, output)


def _ended(finished: run_events.Finished, output: Path) -> Ended:
    return _ended_as(finished.status, finished.reason, output, finished.details)


def _ended_as(status: str, reason: str | None, output: Path, details: str | None = None) -> Ended:
    match status:
        case "completed":
            return Ended(status="completed", reason=reason, artifacts=_artifacts(output / files.ARTIFACTS))
        case "cancelled":
            return Ended(status="cancelled", reason=reason)
        case "paused":
            interrupted = any(part in (reason or "") for part in INTERRUPTIONS)
            return Ended(status="interrupted" if interrupted else "paused", reason=reason)
        case _:
            return _failed("run", reason or status, **({"details": details} if details else {}))


def _failed(kind: str, message: str, **more: Any) -> Ended:
    return Ended(status="failed", reason=message, failure={"kind": kind, "message": message, **more})


def _known_run(store: Store, run_id: str) -> StoredRun | None:
    try:
        return store.run(run_id)
    except NoSuchRun:
        return None


def _settings(order: JobOrder, run: StoredRun | None) -> RunConfig:
    """Return the settings of a new run; those recorded, with the present budget, of one that has begun.

    A run that has not begun has recorded none of the rows that the job's settings hold.
    """
    if run is None or run.identity is None:
        pinned = {} if run is None or not run.config.get("ref") else {"ref": run.config["ref"]}
        return RunConfig(**{**order.settings, **order.budget, **pinned})
    again = ("repo", "sandbox", "sandboxes", "git_token_file", "model_providers", "secret_headers")
    given = {name: order.settings[name] for name in again if name in order.settings}
    return from_record(run.config, {**given, **order.budget})


def _check(session: sessions.SandboxSession) -> Ended | None:
    """Try the program on a few rows; return the failure of a job that cannot run."""
    try:
        preflight(_as_called(session.settings))
        report = run_to_end(check_server(session.settings, EXAMPLES))
    except (SettingsError, ClientError, RpcError) as error:
        return _failed("preflight", summary(error))
    if report.passed:
        for line in check_lines(report):
            print(line, file=sys.stderr, flush=True)
        return None
    steps = [step.message for step in report.steps if step.verdict == "failed"]
    found = [log.text for log in session.check_findings()]
    return _failed("preflight", "; ".join(steps), check=report.model_dump(mode="json"), findings=found)


def _as_called(settings: RunConfig) -> RunConfig:
    """Return the settings with the address that the gateway forwards to, for a check that asks the model there."""
    described = (settings.model_providers or {}).get((settings.reflection_lm or "").partition("/")[0])
    if described is None:
        return settings
    arguments = {**(settings.reflection_lm_kwargs or {}), "api_base": described.base_url}
    return settings.model_copy(update={"reflection_lm_kwargs": arguments})


def _artifacts(folder: Path) -> dict[str, Any]:
    """Return the JSON files that the program wrote at the end, the small ones."""
    found: dict[str, Any] = {}
    paths = sorted(folder.rglob("*.json")) if folder.is_dir() else []
    for path in paths[:MOST_ARTIFACTS]:
        if path.stat().st_size <= LARGEST_ARTIFACT:
            with contextlib.suppress(ValueError, RecursionError):  # it is no JSON after all
                found[str(path.relative_to(folder))] = json.loads(path.read_bytes())
    return found


def _print(log: Log) -> None:
    print(log.text, file=sys.stderr, flush=True)


class _Quiet(JsonDisplay):
    """Prints notes alone: the journal holds the events."""

    def event(self, event: run_events.Event, record: RunRecord) -> None:
        """Print nothing."""
