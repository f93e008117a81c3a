"""`evolverpc fork RUN --at N`: a new run that starts from the first N entries of another run's journal."""

from collections.abc import Mapping
from typing import Any

from evolverpc_common.settings.sources import SettingsError
from gepa_client.cli.commands.store_access import open_cli_run, resume_call, run_as_json
from gepa_client.journal.entries import RESUMED_BY, SEARCH, STOP, StoredRun
from gepa_client.journal.history import end_of, entries
from gepa_client.journal.soundness import damage
from gepa_client.journal.store import Store
from gepa_client.run.output_folder import new_run_id
from gepa_client.settings.loading import from_record, replaced
from gepa_client.settings.run_config import ROW_SETTINGS, RunConfig
from gepa_client.settings.secret_settings import left_out
from gepa_client.views.console import echo, echo_next, make_console, print_json, refuse, safe_line
from protocol import JsonValue

OF_ITS_OWN = ("name", "output")
"""Settings that the new run does not inherit."""


def fork(run: str, url: list[str] | None, at: int, as_json: bool, **given: Any) -> None:
    """Store the new run and print how to resume it; the help is in `cli.flags`."""
    store: str | None = given["store"]
    with open_cli_run(store, run) as (kept, found):
        _refuse_beyond(kept, found, at)
        try:
            config, record = _settings(found.config, {**given, "url": url or None})
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


def _settings(recorded: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
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
