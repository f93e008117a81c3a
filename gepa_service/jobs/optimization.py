"""An optimization in its process: sandboxes, a check, then its run in a driver process that is kept apart."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from evolverpc_common.network_addresses import parse_networks
from evolverpc_common.settings.sources import SettingsError
from gepa_client.check.check_report import brief_lines
from gepa_client.check.preflight import preflight
from gepa_client.check.server_check import check_server
from gepa_client.errors import ClientError, ConnectionLost, NoSuchRun, RunExists, summary
from gepa_client.foreground.foreground_run import ForegroundRun
from gepa_client.journal import run_events
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.http_store import TOKEN_FILE_VARIABLE, HttpStore
from gepa_client.journal.requests import SpendingTotals
from gepa_client.journal.store import Store
from gepa_client.run import output_folder as files
from gepa_client.run.resolved_settings import listed_endpoints
from gepa_client.run.run_view import RunView
from gepa_client.sandboxing.session import SandboxSession
from gepa_client.sandboxing.session_interface import Log
from gepa_client.sandboxing.setup import open_setup
from gepa_client.settings.loading import from_record
from gepa_client.settings.run_config import CHECKED_ROWS, ENDINGS, RunConfig
from gepa_client.transport.event_loop import run_to_end
from gepa_client.views.console import make_console
from gepa_client.views.live_display import JsonDisplay
from gepa_service.jobs.driver_place import DriverPlace, place_for
from gepa_service.jobs.http_front import HttpFront
from gepa_service.jobs.messages import Ended, OptimizeOrder, failed
from gepa_service.jobs.work_session import end_earlier_attempts, saved_program, work_settings
from protocol.errors import RpcError


def optimize(order: OptimizeOrder) -> Ended:
    """Run the optimization to its end, and return how it ended. Raises `ENDING` of `ended_by`."""
    os.environ[TOKEN_FILE_VARIABLE] = str(order.token_file)
    with contextlib.closing(HttpStore(order.api, token_file=order.token_file)) as store:
        run = _known_run(store, order.id)
        if run is not None and run.status in ("completed", "cancelled", "failed"):
            return ended_as(run.status, run.reason, order.folder / "results")
        spent = 0.0 if run is None else SpendingTotals(store.spending(run.id)).cost_usd
        with _session(order, run, spent) as (session, front):
            if run is None and (failure := _check(session, order)) is not None:
                return failure
            with place_for(order, session, front) as place:
                return _driven(order, store, run, place)


@contextlib.contextmanager
def _session(
    order: OptimizeOrder, run: StoredRun | None, spent_usd: float
) -> Iterator[tuple[SandboxSession, HttpFront | None]]:
    """Start the sandboxes of the job for the block; yield their session, and the front of a job at Modal."""
    setup = partial(open_setup, allowed_networks=parse_networks(order.allow_networks), publishes=True)
    with work_settings(order, partial(_settings, order, run)) as (settings, front):
        if front is not None:
            asyncio.run(end_earlier_attempts(order.id, settings))
        session = SandboxSession(settings, order.id, setup, size=settings.sandboxes)
        try:
            session.start(_print, lambda _progress: None, spent_usd=spent_usd)
            yield session, front
        finally:
            if not session.close():
                _print(Log("not all sandboxes have ended in time"))


def _driven(order: OptimizeOrder, store: Store, run: StoredRun | None, place: DriverPlace) -> Ended:
    settings = place.sandboxes.settings
    if place.fleet is not None:
        settings = settings.model_copy(update={"fleet": place.fleet})
    output = files.open_again(order.folder / "results")
    files.remove_reports(output)
    if run is None:
        run = StoredRun(id=order.id, name=settings.name, config=settings.recorded(), output=str(output))
        with contextlib.suppress(RunExists):  # by a request whose response was lost
            store.create(run)
    ended = ForegroundRun(
        settings=settings,
        store=order.api,
        store_typed=None,
        run=run,
        output=output,
        json_events=True,
        console=make_console(stderr=True),
        sandboxes=place.sandboxes,
        display=_Quiet(),
        launch=place.launch,
        driver_store=place.store,
        driver_writes=False,
        seen_requests=len(store.requests(run.id)),
    ).drive()
    if ended.by_hand and ended.finished.status == "paused":
        return Ended(status="interrupted", reason="stopped")
    found = ended.finished
    return ended_as(found.status, found.reason, output, infrastructure=found.infrastructure, details=found.details)


def ended_as(
    status: str, reason: str | None, output: Path, *, infrastructure: bool = False, details: str | None = None
) -> Ended:
    """Return how a job ends by the end of its run. `output`: the run's folder, with the program's files.

    `infrastructure`, `details`: as of the run's `Finished`.
    """
    match status:
        case "completed":
            return Ended(status="completed", reason=reason, program_json=saved_program(output / files.ARTIFACTS))
        case "cancelled":
            return Ended(status="cancelled", reason=reason)
        case "paused" | "refused" if infrastructure:
            return Ended(status="interrupted", reason=reason)
        case "paused":
            return Ended(status="paused", reason=reason)
        case _:
            more = {"details": details} if details else {}
            return failed("run", reason or status, **more)


def _known_run(store: Store, run_id: str) -> StoredRun | None:
    try:
        return store.run(run_id)
    except NoSuchRun:
        return None


def _settings(order: OptimizeOrder, run: StoredRun | None, gateway: Mapping[str, Any]) -> RunConfig:
    """Return the settings of a new run; those recorded, with the present limits, of one that has begun.

    A run that has not begun has recorded none of the rows that the job's settings hold. `gateway`: the settings by
    which sandboxes at Modal reach it now.
    """
    if run is None or run.identity is None:
        pinned = {} if run is None or not run.config.get("ref") else {"ref": run.config["ref"]}
        return RunConfig(**{**order.settings, **pinned, **gateway})
    again = ("repo", "sandbox", "sandboxes", "git_token_file", "model_providers", "secret_headers", *ENDINGS)
    given = {name: order.settings[name] for name in again if name in order.settings}
    return from_record(run.config, {**given, **gateway})


def _check(session: SandboxSession, order: OptimizeOrder) -> Ended | None:
    """Try the program on a few rows; return how the job ends if it cannot run: interrupted if a server was lost.

    Raises:
        ConnectionLost: the server was lost.
    """
    before = listed_endpoints(session.settings)

    def ended(found: Ended, *, lost: bool = False) -> Ended:
        is_lost = lost or bool({*before} - {*listed_endpoints(session.settings)})  # a sandbox ended meanwhile
        return found.model_copy(update={"status": "interrupted"}) if is_lost else found

    try:
        preflight(_as_called(session.settings), parse_networks(order.allow_networks))
        # The optimizer alone reaches the model, through the gateway, which has its key.
        report = run_to_end(check_server(session.settings, CHECKED_ROWS, calls_model=False))
    except ConnectionLost:
        raise
    except (SettingsError, ClientError, RpcError) as error:
        return ended(failed("preflight", summary(error)))
    if report.passed:
        for text, is_warning in brief_lines(report):
            print(f"check: {'warning: ' if is_warning else ''}{text}", file=sys.stderr, flush=True)
        return None
    steps = [step.message for step in report.steps if step.verdict == "failed"]
    found = [log.text for log in session.check_findings()]
    failure = failed("preflight", "; ".join(steps), check=report.model_dump(mode="json"), findings=found)
    return ended(failure, lost=report.lost)


def _as_called(settings: RunConfig) -> RunConfig:
    """Return the settings with the address that the gateway forwards to, for a check that asks the model there."""
    described = (settings.model_providers or {}).get((settings.reflection_lm or "").partition("/")[0])
    if described is None:
        return settings
    arguments = {**(settings.reflection_lm_kwargs or {}), "api_base": described.base_url}
    return settings.model_copy(update={"reflection_lm_kwargs": arguments})


def _print(log: Log) -> None:
    print(log.text, file=sys.stderr, flush=True)


class _Quiet(JsonDisplay):
    """Prints notes alone: the journal holds the events."""

    def event(self, event: run_events.Event, record: RunView) -> None:
        """Print nothing."""
