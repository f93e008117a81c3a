"""Settings from a configuration file and flags, with errors that say which key of which file is wrong."""

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rpc_server.settings.settings import GIVEN_AS, Settings, concerns

CONFIG_FILE = "gepa.toml"
PROJECT_FILE = "pyproject.toml"

_PATHS = ("root", "token_file", "python", "tree_dir", "trainset_path", "valset_path", "saved_program_json_path")


class SettingsError(ValueError):
    """The settings cannot be used; the message names the key and the file or flag."""


def load_settings(
    config: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    find: bool = True,
) -> Settings:
    """The settings of a configuration file, overridden by flags.

    The file is `config`; else, where `find` is true, `gepa.toml` or a `pyproject.toml` with `[tool.gepa]` in `folder`
    (the working directory when not given). `flags` maps setting names to values as a file would give them. Paths in
    flags are relative to `folder`, those in a file to the file's own folder, which becomes `root`.

    Raises:
        SettingsError: no such file, not TOML, an unknown key, a value of the wrong kind, or no program named.
    """
    folder = folder if folder is not None else Path.cwd()
    path = config if config is not None or not find else _find(folder)
    from_file = _read(path) if path is not None else {}
    source = str(path) if path is not None else "the settings"
    from_flags = {name: _anchored(name, value, folder) for name, value in (flags or {}).items()}
    _check_known(from_file, source)
    _check_known(from_flags, "the flags")
    chosen = [name for name in GIVEN_AS if name in from_flags]
    if len(chosen) == 1:
        # The file's program goes, and with it what was said of it alone.
        kind = from_flags.get("kind", GIVEN_AS[chosen[0]])
        gone = {*GIVEN_AS, "kind"}
        from_file = {key: value for key, value in from_file.items() if key not in gone and concerns(key, kind)}
    root = (path.parent if path is not None else folder).absolute()
    merged = {**from_file, **from_flags}
    merged["root"] = str(root / merged.get("root", "."))
    try:
        # As JSON, because only there strictness still takes a string for a path; with `Infinity`, which means no end.
        return Settings.model_validate_json(json.dumps(merged), strict=True)
    except ValidationError as error:
        raise SettingsError("\n".join(_faults(error, from_flags, source))) from None
    except TypeError as error:
        raise SettingsError(f"{source}: {error}") from None


def _find(folder: Path) -> Path | None:
    config = folder / CONFIG_FILE
    if config.is_file():
        return config
    project = folder / PROJECT_FILE
    if project.is_file() and "gepa" in _parsed(project).get("tool", {}):
        return project
    return None


def _read(path: Path) -> dict[str, Any]:
    document = _parsed(path)
    if path.name != PROJECT_FILE:
        return document
    table = document.get("tool", {}).get("gepa")
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: there is no [tool.gepa]")
    return table


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: not TOML: {error}") from None


def _check_known(given: Mapping[str, Any], source: str) -> None:
    for key in given:
        if key not in Settings.model_fields:
            nearest = difflib.get_close_matches(key.replace("-", "_"), Settings.model_fields, n=1, cutoff=0.5)
            hint = f"; did you mean `{nearest[0]}`?" if nearest else ""
            raise SettingsError(f"{source}: unknown key `{key}`{hint}")


def _anchored(name: str, value: Any, folder: Path) -> Any:
    """A flag's paths as seen from where it was typed."""
    if name == "datasets" and isinstance(value, Mapping):
        return {split: str(folder / path) for split, path in value.items()}
    is_path = name in _PATHS or (name == "seed_candidate" and isinstance(value, str))
    is_module_file = name == "program" and isinstance(value, str) and value.endswith(".py")
    # An interpreter may also be a bare name, looked up on the search path.
    if (is_path or is_module_file) and not (name == "python" and "/" not in str(value)):
        return str(folder / value)
    return value


def _faults(error: ValidationError, flags: Mapping[str, Any], source: str) -> list[str]:
    faults = []
    for detail in error.errors(include_url=False, include_context=False):
        message = detail["msg"].removeprefix("Value error, ")
        if not detail["loc"]:
            faults.append(message if source == "the settings" else f"{source}: {message}")
            continue
        key = str(detail["loc"][0])
        where = f"--{key.replace('_', '-')}" if key in flags else f"{source}: `{key}`"
        fault = f"{where}: {message} (given: {_shown(detail['input'])})"
        faults.append(fault)
    return list(dict.fromkeys(faults))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
