"""Makes the flags of a command from the settings, so that a setting and its flag can never differ."""

import inspect
import json
import shlex
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperCommand

from gepa_client.settings.run_config import GROUPS, REPLACED, RunConfig
from gepa_client.settings.sandbox_settings import SandboxSettings
from gepa_client.settings.secrets import without_secrets

CHECK_SETTINGS = (
    *SandboxSettings.model_fields,
    "fleet",
    "token_file",
    "allow_insecure",
    "allow_mixed_programs",
    "score_with",
    "score_token_file",
    "trainset",
    "max_metric_calls",
    "auto",
    "max_full_evals",
    "reflection_lm",
    "reflection_lm_kwargs",
    "reflection_minibatch_size",
    "evolve",
    "ignore_findings",
)
"""The settings `gepa-client check` has flags for."""

_JSON = ("reflection_lm_kwargs", "wandb_init_kwargs", "model_prices", "model_providers")
_WRITTEN_AS_TEXT = {*_JSON, "reflection_prompt_template"}

_METAVARS = {
    "reflection_lm_kwargs": "JSON",
    "wandb_init_kwargs": "JSON",
    "model_prices": "JSON",
    "model_providers": "JSON",
    "repo": "PATH|URL",
    "ref": "COMMIT",
    "allow_hosts": "HOST|CIDR|*",
    "build_hosts": "HOST|CIDR|*",
    "pass_env": "NAME",
    "models": "NAME",
    "server_args": "FLAGS",
    "gateway_url": "URL",
    "modal_app": "NAME",
    "trainset": "FILE|SPLIT",
    "valset": "FILE|SPLIT",
    "testset": "FILE|SPLIT",
    "score_with": "URL",
    "store": "PATH|URL",
    "proposals": "P|PxN",
    "ignore_findings": "STEP",
}


class SettingsCommand(TyperCommand):
    """A command whose flags are settings: one that GEPA has and we replace is refused with the reason."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, looking first for flags that cannot be."""
        for argument in args:
            flag = argument.partition("=")[0]
            option = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
            if flag.startswith("--") and option in REPLACED:
                ctx.fail(f"{flag} cannot be set: {REPLACED[option]}")
        return super().parse_args(ctx, args)


def parameter(name: str) -> inspect.Parameter:
    """The keyword parameter for the setting `name`: None where the flag is not given."""
    field = RunConfig.model_fields[name]
    kind = str if name in _WRITTEN_AS_TEXT else _kind(field.annotation)
    default = field.default
    flag = f"--{name.replace('_', '-')}"
    option = typer.Option(
        f"{flag}/--no-{flag[2:]}" if kind is bool and not name.startswith("no_") else flag,
        help=_help(field.description or "", default),
        show_default=False,
        metavar=_metavar(kind, name),
    )
    annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def parameters(names: Iterable[str]) -> list[inspect.Parameter]:
    """One parameter per setting, in the order given."""
    return [parameter(name) for name in names]


def setting_names() -> list[str]:
    """Every setting but `url`, which is given as arguments, group by group."""
    return [name for group in GROUPS for name in group.model_fields if name != "url"]


@dataclass(frozen=True)
class Typed:
    """What the user typed: the URLs, the file of settings, and the flags by the names of their settings."""

    urls: tuple[str, ...]
    config: Path | None
    given: Mapping[str, Any]

    def command(self, name: str, **instead: Any) -> str:
        """`gepa-client NAME` with what was typed, to be pasted into a shell; `instead` replaces or adds flags.

        Flags and URLs that the command does not take are left out, and secrets are not repeated.
        """
        words = ["gepa-client", name, *(self.urls[:1] if name == "check" else self.urls)]
        if self.config is not None:
            words += ["--config", str(self.config)]
        for setting, value in {**self.given, **instead}.items():
            if value is not None and (name != "check" or setting in CHECK_SETTINGS):
                words += _flag(setting, value)
        return shlex.join(words)


def _flag(setting: str, value: Any) -> list[str]:
    flag = f"--{setting.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if setting in _JSON:
        value = json.dumps(without_secrets(setting, json.loads(value)))
    if setting == "store":
        value = without_secrets(setting, value)
    given = [str(item) for item in (value if isinstance(value, list | tuple) else [value])]
    return [part for item in given for part in ([f"{flag}={item}"] if item.startswith("-") else [flag, item])]


def _kind(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return _kind(next(part for part in get_args(annotation) if part is not type(None)))
    if get_origin(annotation) is tuple:
        return list[str]
    if get_origin(annotation) is Literal or annotation in (bool, int, float, str, Path):
        return annotation
    raise TypeError(f"no flag can be made for {annotation!r}")


def _metavar(kind: Any, name: str) -> str | None:
    if name in _METAVARS:
        return _METAVARS[name]
    if get_origin(kind) is Literal or kind is bool:
        return None
    return {int: "N", float: "X", str: "TEXT", Path: "PATH"}.get(kind, "TEXT")


def _help(description: str, default: Any) -> str:
    if default is None or default is False or default in ((), ""):
        return description
    told = "yes" if default is True else ", ".join(default) if isinstance(default, tuple) else default
    return f"{description} (default {told})"
