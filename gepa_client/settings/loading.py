"""Reads a run's settings from a TOML file and from flags, and says exactly what is wrong with them."""

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gepa_client.settings.paths import rooted
from gepa_client.settings.run_config import CALL_BUDGETS, DEPENDS, MODEL_ONLY, REPLACED, RunConfig
from gepa_client.settings.sandbox_settings import SANDBOX_ONLY
from gepa_client.settings.secrets import NOT_RECORDED, left_out
from gepa_client.transport.error_format import unreadable

NO_SERVER = (
    "no URL: name the server, as in `gepa-client optimize http://127.0.0.1:8000 --max-metric-calls 500`, or give "
    "--fleet FILE, or start servers in sandboxes with --repo FOLDER"
)
NO_SERVER_RECORDED = (
    "no URL: the run's record names no server (one that was imported never does); give one after the run, "
    "as in `gepa-client resume RUN http://127.0.0.1:8000`, or --fleet FILE, or --repo FOLDER"
)
NOBODY = "nobody"
"""Stands for the servers of a run that calls none."""

REPO_AND_FLEET = (
    "repo and fleet are given: a repository to start servers from, or the file of servers that run, not both"
)
NO_END = (
    "nothing says when to stop: give --max-metric-calls N "
    "(or --auto light|medium|heavy, --max-full-evals N, --max-cost-usd, --max-seconds, --patience, --target-score, "
    "--max-reflection-cost, --stop-callbacks)"
)
RECORD = "the run's record"

REPLACES: dict[str, tuple[str, ...]] = {
    "url": ("fleet", "repo", *SANDBOX_ONLY),
    "fleet": ("url", "token_file", "repo", *SANDBOX_ONLY),
    "repo": ("url", "fleet", "token_file"),
    "git_token_file": ("github_app_id", "github_app_key_file", "github_installation_id"),
    "github_app_id": ("git_token_file",),
    **{name: tuple(other for other in CALL_BUDGETS if other != name) for name in CALL_BUDGETS},
    "proposals": ("sampling_strategy",),
    "sampling_strategy": ("proposals",),
    "reflection_lm": ("reflection",),
}
"""What a flag takes the place of, besides the setting of its own name: other ways to say the same."""

SERVERS = ("url", "fleet", "repo")
"""Settings each of which says where servers are, or come from."""

FROM_FILES = ("reflection_prompt_template", "code_prompt_template", "wandb_api_key")
"""Settings whose text may be given as @file."""

SERVED = {"wandb_api_key": "WANDB_API_KEY"}
"""Settings that may be left out of a record because the environment gives them."""


class SettingsError(Exception):
    """The settings cannot be used; the message says where each fault is and what to write instead."""


def load(path: Path | None, flags: Mapping[str, Any], *, must_end: bool = True) -> RunConfig:
    """The settings of `path`, if given, with `flags` over them; what is None in `flags` was not given.

    `must_end`: something must say when to stop.

    Paths in the file are relative to the file's folder, paths in flags to the working directory.

    Raises:
        SettingsError: the file cannot be read, a key is unknown, a value is of the wrong kind, or they contradict.
    """
    given = _given(flags)
    values: dict[str, Any] = {} if path is None else _read_file(path)
    return _settings(values, given, str(path), must_end=must_end)


def from_record(
    recorded: Mapping[str, Any],
    flags: Mapping[str, Any],
    path: Path | None = None,
    *,
    without: Iterable[str] = (),
    must_end: bool = True,
    calls: bool = True,
) -> RunConfig:
    """The settings a run was started with, from `RunConfig.recorded`, with those of `path` and `flags` over them.

    `without`: recorded settings that do not apply, such as `output` for a run of its own. `store` never does: it is
    where the record came from. A flag also replaces what says the same in another way (`--fleet` the recorded URLs).

    `calls`: False for a run that calls nobody: it does without the servers and the secrets that were left out.

    Raises:
        SettingsError: as `load`; or the record has settings this version does not know, or one that was left out as a
            secret and is not given again.
    """
    unknown = sorted(set(recorded) - set(RunConfig.model_fields))
    if unknown:
        raise SettingsError(
            f"{RECORD} has settings that this version of gepa-client does not know: {', '.join(unknown)}; "
            "use the version that started the run"
        )
    given = _given(flags)
    newer = ({} if path is None else _read_file(path)) | given
    gone = {*without, "store", *newer, *_replaced(newer)}
    defaults = RunConfig.model_construct().model_dump(mode="json")  # a setting at its default was not given
    values = {key: value for key, value in recorded.items() if key not in gone and value != defaults[key]}
    for key, value in list(values.items()):
        if where := left_out(key, value):
            if calls:
                _excuse(key, where)
                del values[key]
            else:
                values[key] = _rest_of(value)
    if not any(found.get(name) for found in (values, newer) for name in SERVERS):
        if calls:
            raise SettingsError(NO_SERVER_RECORDED)
        values["url"] = [NOBODY]
    where = RECORD if path is None else f"{path} or {RECORD}"
    return _settings(values | newer, given, where, must_end=must_end and calls)


def _rest_of(value: Any) -> Any:
    """What is recorded of a setting that holds secrets; None where it is one as a whole."""
    if isinstance(value, dict):
        return {key: _rest_of(part) for key, part in value.items() if part != NOT_RECORDED}
    return None if value == NOT_RECORDED else value


def _excuse(key: str, where: str) -> None:
    """Pass over a secret that the environment gives; raise for any other."""
    variable = SERVED.get(key)
    if variable is not None and os.environ.get(variable):
        return
    flag = f"--{key.replace('_', '-')}"
    again = f"set {variable}, or give {flag} again" if variable else f"give {flag} again, in full"
    raise SettingsError(f"{where} may be a secret and was not recorded: {again}")


def _given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """What was given on the command line, as settings; a flag that may be repeated and was not given may be empty."""
    return {name: _from_flag(name, value) for name, value in flags.items() if value not in (None, [], ())}


def _replaced(given: Mapping[str, Any]) -> set[str]:
    """Settings of a file or a record that `given` makes void without naming them."""
    void = {other for name in given for other in REPLACES.get(name, ())}
    if given.get("reflection") == "program":
        void |= {"reflection_lm", *MODEL_ONLY}
    for used, dependent in DEPENDS.items():
        if given.get(used) is False:
            void.update(dependent)
    return void - set(given)


def _settings(values: Mapping[str, Any], given: Mapping[str, Any], where: str, *, must_end: bool) -> RunConfig:
    """`values`, which come from `where`, with `given` over them."""
    void = _replaced(given)
    merged = {**{key: value for key, value in values.items() if key not in void}, **given}
    if not any(merged.get(name) for name in SERVERS):
        raise SettingsError(NO_SERVER)
    if merged.get("repo") and merged.get("fleet"):
        raise SettingsError(REPO_AND_FLEET)
    try:
        config = RunConfig(**merged)
    except ValidationError as error:
        raise SettingsError("\n".join(_faults(error, where if values else None, given))) from error
    if must_end and not config.ends:
        raise SettingsError(NO_END)
    return config


def unknown_key(key: str, known: Iterable[str], where: str) -> str:
    """The sentence about a key that means nothing here, naming the nearest one that does."""
    nearest = get_close_matches(key, list(known), n=1, cutoff=0.7)
    hint = f"; did you mean `{nearest[0]}`?" if nearest else ""
    return f"{where}: unknown key `{key}`{hint}"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(unreadable(path, error)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not TOML: {error}") from error
    faults = []
    for key in values:
        if key == "token":
            faults.append(f"{path}: `token` does not belong in a file of settings; use `token_file` or GEPA_TOKEN")
        elif key in REPLACED:
            faults.append(f"{path}: `{key}` cannot be set: {REPLACED[key]}")
        elif key not in RunConfig.model_fields:
            faults.append(unknown_key(key, RunConfig.model_fields, str(path)))
    if faults:
        raise SettingsError("\n".join(faults))
    root = path.resolve().parent
    for key in FROM_FILES:
        if key in values:
            values[key] = _contents(key, values[key], root)
    return rooted(values, root)


def _from_flag(name: str, value: Any) -> Any:
    if name == "wandb_api_key" and not str(value).startswith("@"):
        raise SettingsError("--wandb-api-key: arguments can be read by others; give @file, or set WANDB_API_KEY")
    if name in ("reflection_lm_kwargs", "wandb_init_kwargs", "model_prices", "model_providers"):
        return _json_object(name, value)
    if name == "reflection_prompt_template" and str(value).lstrip().startswith("{"):
        return _contents(name, _json_object(name, value), Path.cwd())
    if name in FROM_FILES:
        return _contents(name, value, Path.cwd())
    return value


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingsError(f"--{name.replace('_', '-')}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise SettingsError(f'--{name.replace("_", "-")}: give a JSON object, as in \'{{"key": "value"}}\'')
    return value


def _contents(key: str, value: Any, root: Path) -> Any:
    """`value` with each `@file` in it replaced by what the file holds."""
    if isinstance(value, dict):
        return {name: _contents(key, part, root) for name, part in value.items()}
    if not isinstance(value, str) or not value.startswith("@"):
        return value
    try:
        text = (root / value[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{key}: {unreadable(value[1:], error)}") from error
    return text.strip() if key == "wandb_api_key" else text


def _faults(error: ValidationError, where: str | None, given: Mapping[str, Any]) -> list[str]:
    faults = []
    for fault in error.errors():
        key = ".".join(str(part) for part in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        field = str(fault["loc"][0]) if fault["loc"] else ""
        if not field:
            faults.append(f"{where}: {message}" if where is not None else message)
        elif field in given:
            faults.append(f"--{field.replace('_', '-')}: {message}")
        else:
            faults.append(f"{where}: {key}: {message}")
    return faults
