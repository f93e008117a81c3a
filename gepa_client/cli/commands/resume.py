"""`evolverpc resume RUN`: replay a stopped run up to the end of its journal, then continue it."""

from pathlib import Path
from typing import Any, NoReturn

import typer

from evolverpc_common.display_text import command
from evolverpc_common.settings.sources import SettingsError
from gepa_client.cli.commands.page_process import page_shown
from gepa_client.cli.commands.sandbox_session import sandboxed
from gepa_client.cli.commands.store_access import open_cli_run
from gepa_client.foreground.foreground_run import ForegroundRun
from gepa_client.foreground.run_starts import output_again, replaying, settings_again
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.requests import SpendingTotals
from gepa_client.journal.store import default_store
from gepa_client.run import output_folder as files
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.run_settings import FleetSettings, SandboxSettings
from gepa_client.settings.shell_arguments import NO_LIMIT, GivenArguments, flags_to_continue
from gepa_client.views.console import PAUSED, echo, echo_next, make_console, print_json, refuse, safe_line
from gepa_client.views.live_display import EventStream


def resume(
    run: str,
    url: list[str] | None,
    config: Path | None,
    watch: bool,
    json_events: bool,
    events_fd: int | None,
    **given: Any,
) -> None:
    """Continue a run from its record; the help and the exit statuses are in `cli.flags`."""
    where = default_store(given["store"])
    stream = EventStream(events_fd)
    with open_cli_run(given["store"], run, unavailable=PAUSED) as (kept, found):
        spent_usd = SpendingTotals(kept.spending(found.id)).cost_usd
        seen = len(kept.requests(found.id))
    if found.resumed_by is not None and events_fd is None and not (url or given.get("fleet") or given.get("repo")):
        refuse(
            f"run {found.id} was started by a call of optimize, which serves the program: continue it with "
            f"{found.resumed_by}, or give the URL of a server of the same program"
        )
    try:
        settings = settings_again(found, {**given, "url": url or None}, config)
        if _is_over(found, settings):
            if _lacks_report(found):
                _write_report(found, given["store"], stream, as_json=json_events)
            _print_complete(found, given["store"], stream, as_json=json_events)
            return
        output = output_again(found)
    except (SettingsError, OSError) as error:
        refuse(str(error))
    again = command("resume", found.id, store=given["store"])
    with (
        sandboxed(settings, found.id, again, quiet=json_events, spent_usd=spent_usd, failed=PAUSED) as sandboxes,
        page_shown(found.id, where, wanted=watch, quiet=json_events),
    ):
        ended = ForegroundRun(
            settings=sandboxes.settings,
            store=where,
            store_typed=given["store"],
            run=found,
            output=output,
            json_events=json_events,
            stream=stream,
            sandboxes=sandboxes,
            typed=GivenArguments((found.id, *(url or ())), config, given).command("resume"),
            seen_requests=seen,
        ).drive()
    raise typer.Exit(ended.exit_status)


def _is_over(run: StoredRun, settings: RunConfig) -> bool:
    """Return whether the run is complete and no setting that matters has changed.

    Other servers and sandboxes do not matter; the run itself handles, or refuses, any other difference.
    """
    if run.status != "completed":
        return False
    defaults = RunConfig.model_construct().model_dump(mode="json")
    apart = {*FleetSettings.model_fields, *SandboxSettings.model_fields, "store", "output", "lease_s", "check"}
    return all(
        value == run.config.get(name, defaults[name])
        for name, value in settings.recorded().items()
        if name not in apart
    )


def _lacks_report(run: StoredRun) -> bool:
    """Return whether the command that completed the run ended before it had written its last file, the page."""
    return run.output is not None and Path(run.output).is_dir() and not (Path(run.output) / files.REPORT).exists()


def _write_report(run: StoredRun, store: str | None, stream: EventStream, *, as_json: bool) -> NoReturn:
    """Write the certificate and the reports of a complete run by a replay, and end the command.

    Raises:
        SettingsError: as `replaying`. OSError: the folder cannot be used.
    """
    if not as_json:
        echo(make_console(), "this run is complete; its reports are missing, and a replay of its record writes them")
    ended = replaying(run, store, output_again(run), json_events=as_json, stream=stream).drive()
    raise typer.Exit(ended.exit_status)


def _print_complete(run: StoredRun, store: str | None, stream: EventStream, *, as_json: bool) -> None:
    further = flags_to_continue(run)
    more = command("resume", run.id, *further, store=store) if further else command("watch", run.id, store=store)
    ended = {"status": run.status, "reason": run.reason, "output": run.output}
    spent = {name: run.counters.get(name, 0.0) for name in ("spent_usd", "active_seconds")}
    summary = {"event": "summary", "run_id": run.id, "name": run.name, **ended, **spent, "next": more, "exit_status": 0}
    stream.summary(summary)
    if as_json:
        print_json(summary)
        return
    console = make_console()
    how = "to continue it all the same:" if further else NO_LIMIT
    echo(console, f"{safe_line(run.id)}: this run is completed ({safe_line(run.reason or '')}); {how}")
    echo_next(console, stream.resumed_by(run.id) or more)
