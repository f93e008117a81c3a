"""How a run begins: a new one is checked and stored, a recorded one continues or is replayed."""

import re
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from evolverpc_common.settings.sources import SettingsError
from gepa_client.check.preflight import preflight
from gepa_client.errors import ClientError, summary
from gepa_client.foreground.foreground_run import ForegroundRun
from gepa_client.foreground.program_check import run_check
from gepa_client.journal.entries import RESUMED_BY, StoredRun
from gepa_client.journal.store import default_store, open_store
from gepa_client.run import output_folder as files
from gepa_client.settings.loading import from_record
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.shell_arguments import GivenArguments
from gepa_client.views.console import USAGE, fail
from gepa_client.views.live_display import EventStream
from protocol.errors import RpcError

LONGEST_NAME = 60
"""Characters of a name that the id contains."""


def new_run_id(name: str | None = None) -> str:
    """Return `20250131-235959-1f3a`, with `-NAME` after it; ids sort by time and differ between machines."""
    part = re.sub(r"[^A-Za-z0-9_-]+", "-", name or "").strip("-")[:LONGEST_NAME]
    # os randomness: GEPA's runs depend on the global generator
    own = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    return f"{own}-{part}" if part else own


def create_run(settings: RunConfig, store: str, run_id: str, resumed_by: str | None = None) -> StoredRun:
    """Make the folder for the results of a new run and its record in the store, and return this.

    `resumed_by`: as in `StoredRun`.

    Raises:
        SettingsError: the folder cannot be made.
        JournalError: the store cannot be used.
    """
    try:
        output = files.create(settings.output or files.RUNS / run_id)
    except OSError as error:
        raise SettingsError(f"no folder for the results: {error}") from None
    with closing(open_store(store)) as opened:
        config = settings.recorded() | ({} if resumed_by is None else {RESUMED_BY: resumed_by})
        run = StoredRun(id=run_id, name=settings.name, config=config, output=str(output))
        opened.create(run)
    return run


def checked_run(
    settings: RunConfig,
    run_id: str,
    typed: GivenArguments,
    resumed_by: str | None,
    *,
    json_output: bool = False,
    on_failure: Callable[[str], None] = fail,
) -> StoredRun | int:
    """Check the servers and a few rows, and return the record of the new run; else an exit status.

    `resumed_by`: as of `create_run`. `on_failure`: gets why no run may start.
    """
    where = default_store(settings.store)
    try:
        preflight(settings)
        open_store(where).close()  # a store that cannot be used is found before anything is paid for
        if settings.check != "off":
            status = run_check(settings, typed, json_output=json_output, brief=True, on_failure=on_failure)
            if status != 0:
                return status
        return create_run(settings, where, run_id, resumed_by)
    except (SettingsError, ClientError, RpcError) as error:
        on_failure(summary(error))
        return USAGE


def settings_again(run: StoredRun, given: Mapping[str, Any], config: Path | None) -> RunConfig:
    """Return the settings of a run that continues, those `given` over those recorded.

    Raises:
        SettingsError: as `from_record`, or the budget is less than the metric calls made.
    """
    settings = from_record(run.config, given, config)
    budget, before = settings.max_metric_calls, run.config.get("max_metric_calls")
    done = run.counters.get("metric_calls", 0)
    if budget is not None and budget < done and (before is None or budget < before):
        raise SettingsError(
            f"`max_metric_calls` {budget} is less than the {done} metric calls that are recorded of run {run.id}: "
            f"give {done} or more to continue, or fork it where it had made fewer"
        )
    return settings


def output_again(run: StoredRun) -> Path:
    """Return the folder of a run that continues, made if it has none yet. Raises `OSError`."""
    return files.open_again(Path(run.output)) if run.output else files.open_new(run.id)


def replaying(
    run: StoredRun,
    store_typed: str | None,
    output: Path | None,
    *,
    json_events: bool,
    stream: EventStream | None = None,
    until: int | None = None,
) -> ForegroundRun:
    """Return the replay of a recorded run, which calls nothing. The arguments are those of `ForegroundRun`.

    Raises:
        SettingsError: the recorded settings cannot be read.
    """
    open_part = {key: value for key, value in run.config.items() if key != "output"}
    return ForegroundRun(
        settings=from_record(open_part, {}, calls=False),
        store=default_store(store_typed),
        store_typed=store_typed,
        run=run,
        output=output,
        json_events=json_events,
        stream=stream or EventStream(None),
        replays=True,
        until=until,
    )
