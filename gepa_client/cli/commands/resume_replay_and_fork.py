"""Commands that run GEPA from the record of a run: `evolverpc resume`, `replay` and `fork`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from evolverpc_common.display_text import command
from evolverpc_common.settings.sources import SettingsError
from gepa_client.cli.arguments import RunName, StoreUrl
from gepa_client.cli.commands.store_access import open_cli_run, resume_call, run_as_json
from gepa_client.cli.page_beside_run import page_shown
from gepa_client.cli.sandbox_start import sandboxed
from gepa_client.foreground.foreground_run import ForegroundRun
from gepa_client.foreground.run_starts import new_run_id, output_again, replaying, settings_again
from gepa_client.journal.entries import RESUMED_BY, SEARCH, STOP, StoredRun
from gepa_client.journal.history import end_of, entries
from gepa_client.journal.requests import SpendingTotals
from gepa_client.journal.soundness import damage
from gepa_client.journal.store import Store, default_store
from gepa_client.run import output_folder as files
from gepa_client.settings.loading import from_record, replaced
from gepa_client.settings.run_config import ENDINGS, ROW_SETTINGS, RunConfig
from gepa_client.settings.run_settings import FleetSettings, SandboxSettings
from gepa_client.settings.secret_settings import left_out
from gepa_client.settings.shell_arguments import NO_LIMIT, GivenArguments, flags_to_continue
from gepa_client.views.console import PAUSED, echo, echo_next, make_console, print_json, refuse, safe_line
from gepa_client.views.live_display import EventStream
from protocol import JsonValue

OF_ITS_OWN = ("name", "output")
"""Settings that the new run does not inherit."""


def resume(
    run: str,
    url: list[str] | None,
    config: Path | None,
    watch: bool,
    json_events: bool,
    events_fd: int | None,
    **given: Any,
) -> None:
    """Continue a run from its record."""
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
    # A larger limit does not continue a run that ended by a perfect score.
    limits = ENDINGS if (run.reason or "").startswith("perfect_score") and not settings.past_perfect else ()
    apart = {*limits, *FleetSettings.model_fields, *SandboxSettings.model_fields, "store", "output", "lease_s", "check"}
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


def replay(
    run: RunName,
    until: Annotated[
        int | None, typer.Option("--until", min=0, metavar="N", help="Stop before the request of this number.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Folder for results and report, new or empty (default: none).")
    ] = None,
    json_events: Annotated[bool, typer.Option("--json", help="Print events as JSON lines, a summary last.")] = False,
    store: StoreUrl = None,
) -> None:
    """Replay a run: GEPA decides again, with the recorded responses. Nothing is called or paid for.

    Exits with 0 if the whole record was replayed, 1 if GEPA makes other requests than the recorded ones, 2 if the run
    cannot be replayed.
    """
    with open_cli_run(store, run) as (_, found):
        pass
    try:
        folder = files.create(output) if output is not None else None
        running = replaying(found, store, folder, json_events=json_events, until=until)
    except (SettingsError, OSError) as error:
        refuse(str(error))
    raise typer.Exit(running.drive().exit_status)


def fork(run: str, url: list[str] | None, at: int, as_json: bool, **given: Any) -> None:
    """Store the new run and print how to resume it."""
    store: str | None = given["store"]
    with open_cli_run(store, run) as (kept, found):
        _refuse_beyond(kept, found, at)
        try:
            config, record = _fork_settings(found.config, {**given, "url": url or None})
        except SettingsError as error:
            refuse(str(error))
        if given_rows := [name for name in ROW_SETTINGS if isinstance(getattr(config, name), tuple)]:
            refuse(
                f"{given_rows[0]}: a new run gets its rows when it starts: give rows from stdin, or inline, when you "
                "resume the new run"
            )
        parent: dict[str, JsonValue] = {"run": found.id, "at": at}
        forked = StoredRun(id=new_run_id(config.name), name=config.name, config=record, parent=parent)
        copied = (entry for entry in entries(kept, found.id, SEARCH, 0, at) if entry.kind != STOP)  # it ended that run
        kept.create(forked, copied)
        taken = kept.parts(forked.id).get(SEARCH, 0)
    if as_json:
        print_json(run_as_json(forked) | {"entries": taken})
        return
    console = make_console()
    echo(console, f"{safe_line(forked.id)} begins with {taken:,} entries of {safe_line(found.id)}")
    if at and config.testset is not None:
        echo(
            console,
            f"it will have test scores but no certificate: its first {taken:,} entries are older than its commitment",
        )
    echo_next(console, resume_call(forked, store))


def _refuse_beyond(store: Store, run: StoredRun, at: int) -> None:
    found = damage(store, run.id)
    if found is not None and at > found.usable:
        refuse(f"the journal of {run.id} is damaged: {found}; give --at {found.usable} or less")
    end = end_of(store, run.id, SEARCH) if found is None else at
    if at <= end:
        return
    refuse(
        f"--at {at} lies beyond the journal of {run.id}, which ends at {end}: give 0 to {end}"
        if end
        else f"the journal of {run.id} is empty: there is nothing to fork from but --at 0"
    )


def _fork_settings(recorded: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    """Return the settings of the new run, and their record.

    Secrets are not in the old record; `resume` requires them, so they may be left out here too.
    """
    gone = replaced({name: value for name, value in given.items() if value not in (None, [])})
    secret = {
        key: value
        for key, value in recorded.items()
        if given.get(key) in (None, []) and key not in gone and left_out(key, value)
    }
    open_part = {key: value for key, value in recorded.items() if key not in (*secret, *gone)}
    config = from_record(open_part, given, without=OF_ITS_OWN, must_end=False)
    kept = {key: recorded[key] for key in (RESUMED_BY,) if key in recorded and not given["url"]}
    return config, {**config.recorded(), **secret, **kept}
