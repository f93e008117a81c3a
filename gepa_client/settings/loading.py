"""Read a run's settings: flags over environment variables over a TOML file over the record of an earlier start."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evolverpc_common.row_files import RowFileError, parse_rows
from evolverpc_common.settings.sources import (
    SettingsError,
    SettingsSource,
    from_environment,
    from_file,
    from_flags,
    validated,
)
from gepa_client.journal.entries import RESUMED_BY
from gepa_client.settings.run_config import ALTERNATIVES, DEPENDS, ENDINGS, REPLACED, ROW_SETTINGS, SETTINGS, RunConfig
from gepa_client.settings.run_settings import STDIN
from gepa_client.settings.secret_settings import NOT_RECORDED, left_out

NO_SERVER = (
    "no URL: name the server, as in `evolverpc optimize http://127.0.0.1:8000 --max-metric-calls 500`, or give "
    "`fleet`, or start servers in sandboxes with `repo`"
)
NO_SERVER_RECORDED = (
    "no URL: the run's record names no server (one that was imported never does); give one after the run, "
    "as in `evolverpc resume RUN http://127.0.0.1:8000`, or `fleet`, or `repo`"
)
STDIN_BYTES = 64 * 2**20
"""Largest size of rows on standard input, which are recorded in the run."""

NO_CALLS = "none"
"""Takes the place of the servers of a run that calls none."""

REPO_AND_FLEET = (
    "`repo` and `fleet` are given: a repository to start servers from, or the file of running servers, not both"
)
NO_END = "no limit ends the run: give `{}` (or {})".format(
    *(next(iter(ENDINGS)), ", ".join(f"`{name}`" for name in [*ENDINGS][1:]))
)
RECORD = "the run's record"

SERVERS = ("url", "fleet", "repo")
"""Settings that name servers, or where they come from."""

REFUSED = REPLACED | {"token": "a file of settings is no place for it; use `token_file` or GEPA_TOKEN"}

_FROM_ENVIRONMENT = {name: each for name, each in SETTINGS.items() if name != "store"}
"""`GEPA_STORE` is read by `default_store`, for all commands."""


def load(path: Path | None, flags: Mapping[str, Any], *, must_end: bool = True) -> RunConfig:
    """Return the settings of flags, environment and the file `path`, in this order of precedence.

    A flag that is None was not given. `must_end`: one setting must end the run. Paths in the file are relative to the
    file's folder, others to the working directory.

    Raises:
        SettingsError: the file cannot be read, a setting is unknown or not of its kind, or settings contradict.
    """
    return _settings(_given(path, flags), must_end=must_end)


def from_record(
    recorded: Mapping[str, Any],
    flags: Mapping[str, Any],
    path: Path | None = None,
    *,
    without: Iterable[str] = (),
    must_end: bool = True,
    calls: bool = True,
) -> RunConfig:
    """Return the settings of `RunConfig.recorded`, below those of flags, environment and the file `path`.

    `without`: recorded settings that do not apply, such as `output` for another run. `store` never applies, as the
    record comes from there. `calls`: False for a run that makes no calls; it needs no servers, no secrets that were
    left out, and no environment.

    Raises:
        SettingsError: as `load`; or the record has settings this version does not know, or a setting was left out as a
            secret and is not given again.
    """
    recorded = {name: value for name, value in recorded.items() if name != RESUMED_BY}
    unknown = sorted(set(recorded) - set(RunConfig.model_fields))
    if unknown:
        raise SettingsError(
            f"{RECORD} has settings that this version of evolverpc does not know: {', '.join(unknown)}; "
            "use the version that started the run"
        )
    newer = _given(path, flags) if calls else from_flags(SETTINGS, flags, Path())
    if newer.values.get("validation") == "race" and str(recorded.get("validation")).startswith("race"):  # rows stay
        newer = replace(newer, values={name: value for name, value in newer.values.items() if name != "validation"})
    gone = {*without, "store", *newer.values, *replaced(newer.values)}
    defaults = RunConfig.model_construct().model_dump(mode="json")  # a setting at its default was not given
    values = {name: value for name, value in recorded.items() if name not in gone and value != defaults[name]}
    for name, value in list(values.items()):
        if where := left_out(name, value):
            if calls:
                recorded_part = value if isinstance(value, str) else json.dumps(value)
                raise SettingsError(
                    f"{where} may be a secret and was not recorded: give `{name}` again, in full; "
                    f"the record has {recorded_part}"
                )
            values[name] = _rest_of(value)
    if not any(found.get(name) for found in (values, newer.values) for name in SERVERS):
        if calls:
            raise SettingsError(NO_SERVER_RECORDED)
        values["url"] = [NO_CALLS]
    record = SettingsSource(values, {name: f"`{name}` ({RECORD})" for name in values})
    return _settings(newer.over(record), must_end=must_end and calls)


def _given(path: Path | None, flags: Mapping[str, Any]) -> SettingsSource:
    folder = Path()  # relative paths stay as they were typed
    typed = from_flags(SETTINGS, flags, folder)
    given = typed.over(from_environment(_FROM_ENVIRONMENT, os.environ, folder), replaced(typed.values))
    if path is None:
        return _with_stdin(given)
    found = from_file(path, SETTINGS, refused=REFUSED).anchored(SETTINGS, path.resolve().parent)
    return _with_stdin(given.over(found, replaced(given.values)))


def _with_stdin(source: SettingsSource) -> SettingsSource:
    """Return the settings with the rows on standard input in place of `-`. Raises SettingsError."""
    named = [name for name in ROW_SETTINGS if source.values.get(name) == STDIN]
    if not named:
        return source
    spellings = [source.spellings[name] for name in named]
    if len(named) > 1:
        raise SettingsError(f"{' and '.join(spellings)} are `-`: stdin can be read once; give the others as files")
    content = sys.stdin.buffer.read(STDIN_BYTES + 1)
    if len(content) > STDIN_BYTES:
        raise SettingsError(f"{spellings[0]}: stdin has more than {STDIN_BYTES >> 20} MB: give the rows as a file")
    try:
        rows = parse_rows(content, "stdin")
    except RowFileError as error:
        raise SettingsError(f"{spellings[0]}: {error}") from None
    return replace(source, values={**source.values, named[0]: rows})


def _rest_of(value: Any) -> Any:
    """Return what is recorded of a setting that holds secrets; None if it is one as a whole."""
    if isinstance(value, dict):
        return {key: _rest_of(part) for key, part in value.items() if part != NOT_RECORDED}
    return None if value == NOT_RECORDED else value


def replaced(given: Mapping[str, Any]) -> set[str]:
    """Return the settings of a lower source that `given` replaces without naming them."""
    gone = {other for name in given for other in ALTERNATIVES.get(name, ())}
    for needed, names in DEPENDS.items():
        if given.get(needed) is False or (needed, given.get(needed)) == ("reflection_lm", "program"):
            gone.update(names)
    return gone - set(given)


def _settings(source: SettingsSource, *, must_end: bool) -> RunConfig:
    if not any(source.values.get(name) for name in SERVERS):
        raise SettingsError(NO_SERVER)
    if source.values.get("repo") and source.values.get("fleet"):
        raise SettingsError(source.respelled(REPO_AND_FLEET))
    config = validated(RunConfig, source)
    if must_end and not config.ends:
        raise SettingsError(NO_END)
    return config
