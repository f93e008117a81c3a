"""Reads a run's settings from a TOML file and from flags, and says exactly what is wrong with them."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gepa_client.causes import unreadable
from gepa_client.run.config import REPLACED, RunConfig

PATHS = ("token_file", "output")
ROWS = ("trainset", "valset", "testset")
ROW_SUFFIXES = (".json", ".jsonl", ".csv")


class SettingsError(Exception):
    """The settings cannot be used; the message says where each fault is and what to write instead."""


def load(path: Path | None, flags: Mapping[str, Any], *, must_end: bool = True) -> RunConfig:
    """The settings of `path`, if given, with `flags` over them; what is None in `flags` was not given.

    `must_end`: something must say when to stop.

    Paths in the file are relative to the file's folder, paths in flags to the working directory.

    Raises:
        SettingsError: the file cannot be read, a key is unknown, a value is of the wrong kind, or they contradict.
    """
    values: dict[str, Any] = {} if path is None else _read_file(path)
    given = {name: value for name, value in flags.items() if value is not None}
    values.update({name: _from_flag(name, value) for name, value in given.items()})
    if "url" not in values:
        raise SettingsError("no URL: name the server, as in `gepa-client optimize http://127.0.0.1:8000`")
    try:
        config = RunConfig(**values)
    except ValidationError as error:
        raise SettingsError("\n".join(_faults(error, path, given))) from error
    if must_end and not config.ends:
        raise SettingsError(
            "nothing says when to stop: give --max-metric-calls N (or max_reflection_cost, or stop_callbacks)"
        )
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
    for key in PATHS:
        if isinstance(values.get(key), str):
            values[key] = root / values[key]
    for key in ROWS:
        if isinstance(values.get(key), str) and is_file(values[key]):
            values[key] = str(root / values[key])
    for key in ("reflection_prompt_template", "wandb_api_key"):
        if key in values:
            values[key] = _contents(key, values[key], root)
    if isinstance(values.get("stop_callbacks"), list):
        values["stop_callbacks"] = tuple(_rooted_stopper(item, root) for item in values["stop_callbacks"])
    return values


def is_file(rows: str) -> bool:
    """Whether `rows` names a file rather than a split the server holds."""
    return rows.lower().endswith(ROW_SUFFIXES)


def _from_flag(name: str, value: Any) -> Any:
    if name == "wandb_api_key" and not str(value).startswith("@"):
        raise SettingsError("--wandb-api-key: arguments can be read by others; give @file, or set WANDB_API_KEY")
    if name in ("reflection_lm_kwargs", "wandb_init_kwargs"):
        return _json_object(name, value)
    if name == "reflection_prompt_template" and str(value).lstrip().startswith("{"):
        return _contents(name, _json_object(name, value), Path.cwd())
    if name in ("reflection_prompt_template", "wandb_api_key"):
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


def _rooted_stopper(item: Any, root: Path) -> Any:
    if isinstance(item, str) and item.startswith("file:"):
        return f"file:{root / item.removeprefix('file:')}"
    return item


def _faults(error: ValidationError, path: Path | None, given: Mapping[str, Any]) -> list[str]:
    faults = []
    for fault in error.errors():
        key = ".".join(str(part) for part in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        field = str(fault["loc"][0]) if fault["loc"] else ""
        if not field:
            faults.append(f"{path}: {message}" if path is not None else message)
        elif field in given:
            faults.append(f"--{field.replace('_', '-')}: {message}")
        else:
            faults.append(f"{path}: {key}: {message}")
    return faults
