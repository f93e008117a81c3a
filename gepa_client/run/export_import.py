"""A whole run as one JSON document, to be archived or imported into another store."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import JournalError, NumberTaken
from gepa_client.journal.entries import RESUMED_BY, StoredRun
from gepa_client.journal.export_format import Document, ExportedRun, mistakes
from gepa_client.journal.history import all_rows
from gepa_client.journal.http_messages import plain
from gepa_client.journal.soundness import check_sound
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import TIME_FIELDS
from gepa_client.settings.loading import from_record
from gepa_client.settings.run_settings import FleetSettings, SandboxSettings, TrackingSettings
from gepa_client.settings.secret_settings import NOT_RECORDED, left_out

FORMAT = "evolverpc-run"
VERSION = 8

RUN_FIELDS = tuple(ExportedRun.model_fields)

LIMITS_OF_CALLS = ("concurrency", "example_timeout_s")
"""Settings of the servers that do not depend on which servers they are."""

MACHINE_SETTINGS = frozenset(
    {
        # these servers get this user's token and rows
        *(key for key in FleetSettings.model_fields if key not in LIMITS_OF_CALLS),
        # what is started here, with which of the user's variables and credentials
        *SandboxSettings.model_fields,
        # and here the user's keys, in files and accounts of the user's
        *TrackingSettings.model_fields,
        *("output", "store", "lease_s", RESUMED_BY),
    }
)
"""Settings that an imported file does not choose."""

MODEL_ARGUMENTS = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "seed", "n", "stop", "logit_bias"),
        *("max_tokens", "max_completion_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty"),
        *("reasoning_effort", "thinking", "verbosity"),
        *("timeout", "request_timeout", "max_attempts", "pause_s", "drop_params"),
    }
)
"""Arguments of a reflection model that an imported file may set: how it answers and how long it may take.

Any other argument may redirect the request and its key (`api_base`, `azure_endpoint`, `proxy`, `extra_headers`, ...).
"""


def export_run(store: Store, run_id: str) -> Iterator[str]:
    """Yield the text of one JSON document, row by row: everything about the run but its driver and waiting requests.

    At most a page of rows is in memory. Raises `JournalError` for an answer that is not text, and `StoreDamaged` before
    the first piece if the record is not what was written.
    """
    check_sound(store, run_id)
    run = store.run(run_id)
    counters = {name: value for name, value in run.counters.items() if name != "now"}  # of the driver at this moment
    run = replace(run, counters=counters)
    head = {"format": FORMAT, "version": VERSION, "run": {name: getattr(run, name) for name in RUN_FIELDS}}
    yield json.dumps(head, ensure_ascii=False).removesuffix("}") + ',\n"rows":['
    separator = "\n"
    for row in all_rows(store, run_id):
        yield separator + json.dumps(row, default=plain, ensure_ascii=False)
        separator = ",\n"
    yield "]}"


def import_run(store: Store, document: object) -> StoredRun:
    """Put an exported run into a store; one that was running is paused there.

    The document must not choose endpoints that are called or files that are written here: such settings are left
    out, and so is the folder of its results (see `imported_settings`).

    Raises `RunExists`, and `JournalError` naming what is wrong with the document and where.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise JournalError(f'this is no exported run: its "format" should be "{FORMAT}"')
    version = document.get("version")
    if isinstance(version, int) and version != VERSION:
        raise JournalError(
            f"this run was exported as version {version}, this evolverpc reads {VERSION}: use the one that exported it"
        )
    try:
        read = Document.model_validate(document)
        config = imported_settings(read.run.config)
    except ValidationError as error:
        raise JournalError(f"this exported run is malformed: {mistakes(error, 'the document')}") from None
    except SettingsError as error:
        raise JournalError(f"this exported run is malformed: run.config: {error}") from None
    fields_ = document["run"] | {name: getattr(read.run, name) for name in TIME_FIELDS}
    fields_ |= {"config": config, "output": None}
    if read.run.status == "running":
        fields_ |= {"status": "paused", "reason": "it was running when it was exported"}
    run = StoredRun(**fields_)
    try:
        store.create(run, read.rows)
    except NumberTaken:
        raise JournalError("this exported run is malformed: it has two different rows of one number") from None
    return store.run(run.id)


def imported_settings(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that another machine recorded, as they may be recorded here.

    Settings that name servers, secrets or files are left out. Arguments of the reflection model that are not in
    `MODEL_ARGUMENTS` are marked as not recorded, so that `resume` requires them.

    Raises:
        SettingsError: a setting is unknown or has a wrong type.
    """
    kept: dict[str, Any] = {key: value for key, value in recorded.items() if key not in MACHINE_SETTINGS}
    arguments = kept.get("reflection_lm_kwargs")
    if isinstance(arguments, dict):
        kept["reflection_lm_kwargs"] = {
            key: value if key in MODEL_ARGUMENTS or value is None else NOT_RECORDED for key, value in arguments.items()
        }
    config = from_record(kept, {}, must_end=False, calls=False)
    read = {key: value for key, value in config.recorded().items() if key not in MACHINE_SETTINGS}
    return read | {key: value for key, value in kept.items() if left_out(key, value)}
