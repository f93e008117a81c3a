"""`evolverpc optimize`: start a run in a driver process, display it, and write its results into a folder."""

from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from evolverpc_common.settings.sources import SettingsError
from gepa_client.check.preflight import preflight, preflight_model, preflight_output
from gepa_client.cli.commands.page_process import page_shown
from gepa_client.cli.commands.sandbox_session import sandboxed, show_findings
from gepa_client.errors import ClientError, JournalError, summary
from gepa_client.foreground.foreground_run import ForegroundRun, create_run
from gepa_client.foreground.program_check import run_check
from gepa_client.journal.entries import ITS_ID
from gepa_client.journal.store import default_store, open_store
from gepa_client.run.output_folder import new_run_id
from gepa_client.run.supervisor import LaunchDriver, launched_ahead
from gepa_client.sandboxing.session_interface import NoSandboxes
from gepa_client.settings.loading import load
from gepa_client.settings.shell_arguments import GivenArguments
from gepa_client.transport.address import rpc_url
from gepa_client.views.console import STOPPED, USAGE, fail, make_console, refuse
from gepa_client.views.event_stream import EventStream
from protocol.errors import RpcError


def optimize(
    url: list[str] | None, config: Path | None, watch: bool, json_events: bool, events_fd: int | None, **given: Any
) -> None:
    """Check the servers, start a run and drive it to its end; the help and the exit statuses are in `cli.flags`."""
    console = make_console()
    try:
        settings = load(config, {"url": url, **given})
        for server in settings.url:
            rpc_url(server, allow_insecure=settings.allow_insecure)
        if settings.repo is not None:  # what needs no server is looked at before any is started
            preflight_output(settings)
            preflight_model(settings)
    except (SettingsError, ClientError) as error:
        refuse(summary(error))
    typed = GivenArguments(tuple(url or ()), config, given)
    run_id = new_run_id(settings.name)
    with (
        launched_ahead(settings) as launch,
        sandboxed(settings, run_id, typed.command("optimize"), quiet=json_events) as sandboxes,
    ):
        status = _go(sandboxes, launch, run_id, typed, watch, json_events, EventStream(events_fd), console)
    raise typer.Exit(status)


def _go(
    sandboxes: NoSandboxes,
    launch: LaunchDriver,
    run_id: str,
    typed: GivenArguments,
    watch: bool,
    json_events: bool,
    stream: EventStream,
    console: Console,
) -> int:
    """Check the servers, create the run, and drive it; return the exit status."""
    settings = sandboxes.settings
    try:
        preflight(settings)
    except (SettingsError, ClientError, RpcError) as error:
        fail(summary(error))
        return USAGE
    except KeyboardInterrupt:
        fail("stopped by hand")
        return STOPPED
    where = default_store(settings.store)
    try:
        open_store(where).close()  # a store that cannot be used is found before anything is paid for
    except JournalError as error:
        fail(str(error))
        return USAGE
    if settings.check != "off":
        status = run_check(settings, typed, json_output=json_events, brief=True)
        if status != 0:
            show_findings(sandboxes)
            return status
    try:
        output = create_run(settings, where, run_id, stream.resumed_by(ITS_ID))
    except (SettingsError, JournalError) as error:
        fail(str(error))
        return USAGE
    running = ForegroundRun(
        settings=settings,
        store=where,
        store_typed=typed.given.get("store"),
        run_id=run_id,
        output=output,
        json_events=json_events,
        stream=stream,
        console=console,
        sandboxes=sandboxes,
        launch=launch,
    )
    with page_shown(run_id, where, wanted=watch, quiet=json_events):
        return running.run().exit_status
