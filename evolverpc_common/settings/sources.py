"""Read settings from flags, environment variables and TOML files, and report errors with where each was given."""

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from evolverpc_common.files import no_such_file
from evolverpc_common.settings.definition import Setting, anchored

Model = TypeVar("Model", bound=BaseModel)
Settings = dict[str, Setting]

PREFIX = "GEPA_"
"""Of the variables of settings."""

ALLOWED_HOSTS = "GEPA_ALLOWED_HOSTS"
"""Further allowed hosts of a server, separated by commas: `allowed_hosts` of the process that starts it."""


class SettingsError(ValueError):
    """The settings cannot be used; the message names each, what is accepted, and what to do."""


@dataclass(frozen=True)
class SettingsSource:
    """Settings from one or several places: values as a TOML file would hold them, and how messages name each."""

    values: Mapping[str, Any] = field(default_factory=dict)
    spellings: Mapping[str, str] = field(default_factory=dict)

    def over(self, lower: "SettingsSource", replaced: Iterable[str] = ()) -> "SettingsSource":
        """Return these settings with those of `lower` that are neither given here nor in `replaced`."""
        gone = {*replaced, *self.values}
        return SettingsSource(
            {**{name: value for name, value in lower.values.items() if name not in gone}, **self.values},
            {**lower.spellings, **self.spellings},
        )

    def anchored(self, settings: Settings, folder: Path) -> "SettingsSource":
        """Return these settings with relative paths starting in `folder`. Raises `SettingsError`."""
        values: dict[str, Any] = {}
        for name, value in self.values.items():
            try:
                values |= anchored(settings, {name: value}, folder)
            except ValueError as error:
                raise SettingsError(f"{self.spellings[name]}: {error}") from None
        return SettingsSource(values, self.spellings)

    def respelled(self, message: str) -> str:
        """Return the message with the settings in backquotes as variables or with their places, if given so."""
        return re.sub(
            r"`(\w+)`", lambda found: self.spellings[found[1]] if found[1] in self.values else found[0], message
        )


def from_flags(settings: Settings, given: Mapping[str, Any], folder: Path) -> SettingsSource:
    """Return the flags that were given; None and empty lists stand for others. Paths start in `folder`.

    Raises:
        SettingsError: a value has not the form of its setting.
    """
    _refuse_unknown(given, settings, "the flags")
    typed = {name: value for name, value in given.items() if value is not None and value != [] and value != ()}
    spellings = {name: f"`{name}`" for name in typed}
    return _read(settings, typed, spellings, Setting.read).anchored(settings, folder)


def from_environment(settings: Settings, environment: Mapping[str, str], folder: Path) -> SettingsSource:
    """Return the settings whose variables are set and not empty. Paths start in `folder`.

    Raises:
        SettingsError: a value has not the form of its setting, or a variable is nearly that of a setting.
    """
    named = {name: setting.variable for name, setting in settings.items() if setting.variable is not None}
    for variable in environment.keys() - {*named.values(), ALLOWED_HOSTS}:
        near = difflib.get_close_matches(variable, named.values(), n=1, cutoff=0.9) if variable[:5] == PREFIX else []
        if near:
            raise SettingsError(f"unknown variable {variable}; did you mean `{near[0]}`?")
    texts = {name: environment[variable] for name, variable in named.items() if environment.get(variable)}
    spellings = {name: f"`{named[name]}`" for name in texts}
    return _read(settings, texts, spellings, Setting.read_variable).anchored(settings, folder)


def from_file(
    path: Path, settings: Settings, table: str = "", refused: Mapping[str, str] | None = None
) -> SettingsSource:
    """Return the settings of a TOML file, of a dotted `table` in it if one is named.

    `refused`: keys that cannot be set, each with the reason.

    Raises:
        SettingsError: the file cannot be read or is not TOML, a key is unknown or refused, or a command lacks a quote.
    """
    values = read_toml(path)
    for name in filter(None, table.split(".")):
        values = values.get(name, {})
    if table and not values:
        raise SettingsError(f"{path}: there is no [{table}]")
    spellings = {name: f"`{name}` ({path})" for name in values}
    for name, reason in (refused or {}).items():
        if name in values:
            raise SettingsError(f"{spellings[name]} cannot be set: {reason}")
    _refuse_unknown(values, settings, str(path))
    return _read(settings, values, spellings, Setting.read_toml)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a file. Raises `SettingsError`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(no_such_file(path)) from None
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: not TOML: {error}") from None


def _refuse_unknown(given: Iterable[str], known: Iterable[str], place: str) -> None:
    """Raise `SettingsError` for names that are no settings, each with the nearest known one; `place`: of all names."""
    faults = []
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(name.replace("-", "_"), [*known], n=1, cutoff=0.5)
            hint = f"; did you mean `{nearest[0]}`?" if nearest else ""
            faults.append(f"{place}: unknown key `{name}`{hint}")
    if faults:
        raise SettingsError("\n".join(faults))


def validated(model: type[Model], source: SettingsSource) -> Model:
    """Return the model of these settings.

    Raises:
        SettingsError: a value is not of its kind, or settings contradict each other. Names in backquotes in messages of
            the model's validators are replaced by what the user wrote.
    """
    try:
        # As JSON, because strict validation then still accepts text for a path and a list for a tuple.
        return model.model_validate_json(json.dumps(source.values, default=str), strict=True)
    except ValidationError as error:
        faults = [_fault(detail, source) for detail in error.errors(include_url=False, include_context=False)]
        raise SettingsError("\n".join(dict.fromkeys(faults))) from None


def _read(
    settings: Settings,
    texts: Mapping[str, Any],
    spellings: Mapping[str, str],
    read: Callable[[Setting, Any], Any],
) -> SettingsSource:
    values = {}
    for name, text in texts.items():
        try:
            values[name] = read(settings[name], text)
        except ValueError as error:
            raise SettingsError(f"{spellings[name]}: {error}") from None
    return SettingsSource(values, spellings)


def _fault(detail: Any, source: SettingsSource) -> str:
    message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if not detail["loc"]:
        return source.respelled(message)
    name, *inner = map(str, detail["loc"])
    head = source.spellings.get(name, f"`{name}`")
    if inner:
        return f"{head}: {'.'.join(inner)}: {message}"  # without the value, which may be a secret
    return f"{head}: {message} (given: {_short(detail['input'])})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
