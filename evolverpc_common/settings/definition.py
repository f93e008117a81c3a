"""Define settings as fields of pydantic models, and describe each for the command line, files and the reference."""

import json
import shlex
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

Anchor = Callable[[Any, Path], Any]
"""Makes a value's relative paths absolute, given the folder that they are relative to; leaves other values alone."""


class SettingsGroup(BaseModel):
    """Settings that belong together. `title=` of a subclass is the heading of their section in help and reference."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


@dataclass(frozen=True)
class Limit:
    """How a setting ends a run. `counter`: what it limits, by its name among the run's counters, or `score`.

    `doubled`: twice its value extends the run; else a little more does.
    """

    counter: str = ""
    doubled: bool = True


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting, as its field defines it.

    `kind`: the type without None and constraints; a tuple for repeatables. `everyday` settings come first in the help,
    `rare` ones only under `--help-all`. `shown`: the default as the help prints it, if the value does not show it.
    `variable`: the environment variable, by default `GEPA_` and the name; None if there is none. `short`: a shorter
    name for its flag, which has both. `parse`: reads a flag or variable of a type that has no parser here. `anchor`:
    for paths in other types than `Path`. `limit`: for what ends a run.
    """

    name: str = ""
    group: str = ""
    description: str = ""
    default: Any = None
    kind: Any = None
    everyday: bool = False
    rare: bool = False
    metavar: str | None = None
    shown: str | None = None
    variable: str | None = ""
    short: str | None = None
    parse: Callable[[str], Any] | None = None
    anchor: Anchor | None = None
    limit: Limit | None = None

    @property
    def flag(self) -> str:
        """The flag, such as `--max-seconds`."""
        return flag_of(self.short or self.name)

    @property
    def negation(self) -> str | None:
        """The flag that turns a yes-or-no setting off; None for others, and for settings that are a negation."""
        return f"--no-{self.flag[2:]}" if self.kind is bool and not self.name.startswith("no_") else None

    @property
    def has_off(self) -> bool:
        """Whether `off` is one of its choices."""
        return get_origin(self.kind) is Literal and "off" in get_args(self.kind)

    @property
    def repeatable(self) -> bool:
        """Whether the flag may be given several times."""
        return self.parse in (None, pair) and get_origin(self.kind) in (tuple, dict)

    @property
    def usage(self) -> str:
        """The flag with the placeholder of its value."""
        if self.kind is bool:
            return self.flag if self.negation is None else f"--[no-]{self.flag[2:]}"
        return f"{self.flag} {self.placeholder}"

    @property
    def placeholder(self) -> str:
        """What stands for the value in help: the choices, or the kind of value."""
        if self.metavar is not None:
            return self.metavar
        if get_origin(self.kind) is Literal:
            return "|".join(map(str, get_args(self.kind)))
        if self.parse is not None:
            return {json_object: "JSON", pair: "NAME=VALUE", shlex.split: "COMMAND"}.get(self.parse, "TEXT")
        return {int: "N", float: "X", Path: "PATH"}.get(self.kind, "TEXT")

    @property
    def default_text(self) -> str:
        """The default as help and reference print it."""
        if self.shown is not None:
            return self.shown
        match self.default:
            case bool():
                return "yes" if self.default else "no"
            case None | "" | () | {}:
                return "none"
            case tuple():
                return ", ".join(map(str, self.default))
            case float():
                return f"{self.default:g}"
            case _:
                return str(self.default)

    def read(self, given: Any) -> Any:
        """Return the text of a flag or variable as a file would hold the value; a value that is no text stays.

        Raises:
            ValueError: the text has not the form of this setting.
        """
        if self.parse is pair:
            return dict(map(pair, given)) if isinstance(given, list | tuple) else given
        if not isinstance(given, str):
            return given
        if self.parse is not None:
            return self.parse(given)
        try:
            return TypeAdapter(self.kind).validate_python(given) if self.kind in (bool, int, float) else given
        except ValidationError:
            return given  # the model reports it

    def read_toml(self, value: Any) -> Any:
        """Return the value of a TOML file; a command may be one text there too. Raises `ValueError`."""
        return self.read(value) if self.parse is shlex.split else value

    def read_variable(self, text: str) -> Any:
        """Return the value of an environment variable: several values are separated by commas. Raises `ValueError`."""
        if self.repeatable and text.lstrip()[:1] not in ("[", "{"):
            return self.read([part.strip() for part in text.split(",") if part.strip()])
        return json.loads(text) if self.repeatable else self.read(text)


def setting(default: Any, description: str, **options: Any) -> Any:
    """Return the field of one setting. `default`: a value, or a function that makes it. `options`: of `Setting`."""
    extra: Any = {"setting": Setting(description=description, **options)}
    return constant(default, description, json_schema_extra=extra)


def constant(default: Any, description: str, **further: Any) -> Any:
    """Return the field of a value that belongs beside settings, but that no flag, variable or file gives.

    `default`: a value, or a function that makes it. `further`: more arguments of pydantic's `Field`.
    """
    made: dict[str, Any] = {"default_factory": default} if callable(default) else {"default": default}
    return Field(description=description, **made, **further)


def settings_of(model: type[BaseModel]) -> dict[str, Setting]:
    """Return all settings of a model, in the order of their groups."""
    titles = {
        name: str(group.model_config.get("title", group.__name__))
        for group in model.__mro__
        if issubclass(group, SettingsGroup)
        for name in vars(group).get("__annotations__", {})
    }
    found = {}
    for name, field in model.model_fields.items():
        extra: Any = field.json_schema_extra or {}
        if (defined := extra.get("setting")) is None:
            continue
        kind = _kind(field.annotation)
        found[name] = replace(
            defined,
            name=name,
            group=titles[name],
            default=field.default,
            kind=kind,
            variable=f"GEPA_{name.upper()}" if defined.variable == "" else defined.variable,
            anchor=defined.anchor or (_absolute if kind is Path else None),
        )
    return found


def flag_of(name: str) -> str:
    """Return the flag of a setting, such as `--max-seconds`."""
    return f"--{name.replace('_', '-')}"


def anchored(settings: dict[str, Setting], values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return `values` with their relative paths starting in `folder`; those of no setting as they are."""
    return {
        name: anchor(value, folder)
        if value is not None and name in settings and (anchor := settings[name].anchor) is not None
        else value
        for name, value in values.items()
    }


def json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object. Raises `ValueError`."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("""give a JSON object, as in '{"key": "value"}'""")
    return value


def object_or_text(text: str) -> Any:
    """Parse a JSON object if the text begins as one. Raises `ValueError`."""
    return json_object(text) if text.lstrip().startswith("{") else text


def pair(text: str) -> tuple[str, str]:
    """Split `NAME=VALUE`. Raises `ValueError`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def path_unless(is_name: Callable[[str], bool]) -> Anchor:
    """Return a function that anchors a text at a folder, unless it names something other than a file or folder."""

    def anchor(value: Any, folder: Path) -> Any:
        return str(folder / value) if isinstance(value, str | Path) and not is_name(str(value)) else value

    return anchor


def _absolute(value: Any, folder: Path) -> Any:
    return str(folder / value) if isinstance(value, str | Path) else value


def _kind(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return _kind(next(part for part in get_args(annotation) if part is not type(None)))
    return annotation
