"""`evolverpc optimize`: start a run in a driver process, display it, and write its results into a folder."""

from pathlib import Path
from typing import Any

import typer

from evolverpc_common.settings.sources import SettingsError
from gepa_client.check.preflight import preflight_model, settings_faults
from gepa_client.cli.page_beside_run import page_shown
from gepa_client.cli.sandbox_start import sandboxed, show_findings
from gepa_client.errors import ClientError, summary
from gepa_client.foreground.foreground_run import ForegroundRun
from gepa_client.foreground.run_starts import checked_run, new_run_id
from gepa_client.journal.entries import ITS_ID
from gepa_client.journal.store import default_store
from gepa_client.run.supervisor import launched_ahead
from gepa_client.settings.loading import load
from gepa_client.settings.shell_arguments import GivenArguments
from gepa_client.transport.address import rpc_url
from gepa_client.views.console import refuse
from gepa_client.views.live_display import EventStream


def optimize(
    url: list[str] | None, config: Path | None, watch: bool, json_events: bool, events_fd: int | None, **given: Any
) -> None:
    """Check the servers, start a run and drive it to its end."""
    try:
        settings = load(config, {"url": url, **given})
        for server in settings.url:
            rpc_url(server, allow_insecure=settings.allow_insecure)
        if settings.repo is not None:  # what needs no server is looked at before any is started
            if faults := settings_faults(settings):
                raise SettingsError("\n".join(faults))
            preflight_model(settings)
    except (SettingsError, ClientError) as error:
        refuse(summary(error))
    typed = GivenArguments(tuple(url or ()), config, given)
    run_id, stream = new_run_id(settings.name), EventStream(events_fd)
    with (
        launched_ahead(settings) as launch,
        sandboxed(settings, run_id, typed.command("optimize"), quiet=json_events) as sandboxes,
    ):
        settings = sandboxes.settings
        run = checked_run(settings, run_id, typed, stream.resumed_by(ITS_ID), json_output=json_events)
        if isinstance(run, int):
            show_findings(sandboxes)
            raise typer.Exit(run)
        where = default_store(settings.store)
        running = ForegroundRun(
            settings=settings,
            store=where,
            store_typed=typed.given.get("store"),
            run=run,
            output=Path(run.output or ""),
            json_events=json_events,
            stream=stream,
            sandboxes=sandboxes,
            launch=launch,
        )
        with page_shown(run_id, where, wanted=watch, quiet=json_events):
            ended = running.drive()
    raise typer.Exit(ended.exit_status)
