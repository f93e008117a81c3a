"""The settings of a job: those of `evolverpc optimize` that tenants choose and see, and what the service decides."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from evolverpc_common.git import GitError, run_git
from evolverpc_common.network_addresses import Network
from gepa_client.settings.run_config import SETTINGS, RunConfig
from gepa_client.settings.run_settings import ROW_SUFFIXES, SandboxSettings, parse_secret_header
from gepa_service.jobs.job_environment import may_be_secret
from gepa_service.repositories.destinations import DestinationRefused, destination_of, refused_host, refused_network

_SERVICE = "the service decides it"
_FILE = "it names a file of the machine that the service runs on"
_ENDPOINT = "the service starts the program in sandboxes of its repository"

DECIDED: dict[str, str] = {
    "url": _ENDPOINT,
    "fleet": _ENDPOINT,
    "token_file": _FILE,
    "score_with": _ENDPOINT,
    "allow_insecure": _ENDPOINT,
    "repo": "give `repo_url` or `client_id` beside `options`",
    "ref": "give `ref` beside `options`",
    "trainset": "give `trainset` or `trainset_path` beside `options`",
    "valset": "give `valset` or `valset_path` beside `options`",
    "testset": "give `testset` or `testset_path` beside `options`",
    "sandbox": "the operator of the service has chosen the backend",
    "engine": _SERVICE,
    "git_token_file": "give `installation_id` to POST /connect-git",
    "gateway": _SERVICE,
    "modal_app": _SERVICE,
    "output": "results are read over HTTP",
    "store": _SERVICE,
    "lease_s": _SERVICE,
    "require": "the job's certificate states whether it improved",
    "tracking": "the optimizer of a job connects to nothing but models",
}
"""Settings that no tenant gives, each with the reason."""

SHOWN_SETTINGS = frozenset({"trainset", "valset", "testset", "ref"})
"""Settings that the service decides and a tenant sees all the same."""

SECRET_ARGUMENTS = re.compile(r"(api_?)?key|token|password|secret|authorization|headers|extra_headers", re.IGNORECASE)
"""Arguments of a model that would hold a secret: settings are stored and shown."""

CONNECTING_ARGUMENTS = frozenset({"api_base", "base_url", "custom_llm_provider", "azure_endpoint", "vertex_location"})

LARGEST: dict[str, float] = {
    "sandbox_cpu": 8,
    "sandbox_memory_mb": 16_384,
}
"""The largest values of settings that use the service's machines."""


class _Options(BaseModel):
    """Every setting of `evolverpc optimize` that a tenant may choose; the reference of settings describes each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def __deepcopy__(self, _memo: dict[int, Any] | None = None) -> Self:
        """Return itself: pydantic copies the default of a field for each request, which takes longer than all else."""
        return self

    @model_validator(mode="before")
    @classmethod
    def _refuse_decided(cls, given: Any) -> Any:
        for name in given if isinstance(given, dict) else ():
            if name in DECIDED:
                raise ValueError(f"`{name}` is not given here: {DECIDED[name]}")
        return given


class _SandboxOptions(_Options):
    """Every setting of sandboxes that a tenant may choose; the reference of settings describes each."""


def _with_fields(own: type[_Options], settings: type[BaseModel]) -> Any:
    """Return the model with each of the settings that a tenant may choose, without what the command line needs."""
    fields: dict[str, Any] = {}
    for name, field in settings.model_fields.items():
        if name in SETTINGS and name not in DECIDED:
            annotation: Any = field.annotation
            for part in field.metadata:
                annotation = Annotated[annotation, part]
            default = field.get_default(call_default_factory=True)
            fields[name] = annotation, Field(default, description=field.description)
    return create_model(own.__name__.strip("_"), __base__=own, __doc__=own.__doc__, **fields)


if TYPE_CHECKING:
    Options = _Options
    SandboxOptions = _SandboxOptions
else:
    Options = _with_fields(_Options, RunConfig)
    SandboxOptions = _with_fields(_SandboxOptions, SandboxSettings)


class SettingRefused(Exception):
    """A setting cannot be used. `field`: its name."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def checked_settings(given: Mapping[str, Any], networks: Sequence[Network], *, must_end: bool = True) -> dict[str, Any]:
    """Return the settings of a job as they are stored: those that were given, as JSON. Resolves names, so it blocks.

    `given`: with `repo`. `networks`: besides the public ones that the operator allows. `must_end`: a limit is needed.

    Raises:
        SettingRefused: a setting is unknown, decided by the service, wrong, or leads to a private network.
    """
    for name, value in given.items():
        if isinstance(value, str | dict) and name.endswith("_template"):
            _check_template(name, value)
    try:
        config = RunConfig.model_validate(dict(given))
    except ValidationError as error:
        raise _refused(error) from None
    if config.ref is not None:
        try:
            run_git("check-ref-format", "--allow-onelevel", config.ref, folder=Path("/"))
        except (GitError, ValueError):
            raise SettingRefused("ref", "`ref`: git takes no such name; give a branch, a tag or a commit") from None
    for name, most in LARGEST.items():
        if getattr(config, name) > most:
            raise SettingRefused(name, f"`{name}` is at most {most:g} at this service")
    for name in ("allow_hosts", "build_hosts"):
        for host in getattr(config, name) if name in config.model_fields_set else ():
            if (reason := refused_network(host, networks)) is not None:
                raise SettingRefused(name, reason)
    for variable in _named_secrets(config):
        if not may_be_secret(variable):
            raise SettingRefused("pass_env", f"`{variable[:128]}` cannot be the name of a secret: choose another one")
    for text in config.secret_headers:
        if (reason := refused_host(parse_secret_header(text)[0], networks)) is not None:
            raise SettingRefused("secret_headers", reason)
    for provider, described in (config.model_providers or {}).items():
        try:
            destination_of(described.base_url, networks)
        except DestinationRefused as refused:
            raise SettingRefused("model_providers", f"{provider}: {refused}") from None
    for name in _names(config.reflection_lm_kwargs):
        if SECRET_ARGUMENTS.fullmatch(name):
            raise SettingRefused("reflection_lm_kwargs", f"`{name}` is a secret: give it to PUT /secrets/{{name}}")
        if name in CONNECTING_ARGUMENTS:
            raise SettingRefused("reflection_lm_kwargs", f"`{name}`: name a provider in `model_providers`")
    if must_end and not config.ends:
        raise SettingRefused("max_metric_calls", "nothing would end the job: give `max_metric_calls` or `max_cost_usd`")
    return config.model_dump(mode="json", exclude_unset=True)


def repository_path(text: str, suffixes: tuple[str, ...] = ROW_SUFFIXES) -> str:
    """Return the path of a file of the repository, by default one of rows, from the program's folder.

    Raises:
        ValueError: it is absolute, leads out of the repository, or ends in none of `suffixes`.
    """
    if re.search(r"^[/~ -]|[=\\]|://|(^|/)\.(\.|git)(/|$)", text) or not text.isprintable():
        raise ValueError("give a path in the repository, from the program's folder")
    if not text.lower().endswith(suffixes):
        raise ValueError(f"rows and programs are read from {', '.join(suffixes)} files")
    return text


def _check_template(name: str, value: str | dict[str, Any]) -> None:
    for text in value.values() if isinstance(value, dict) else [value]:
        if isinstance(text, str) and text.startswith("@"):
            raise SettingRefused(name, f"`{name}`: give the text itself; a file of this machine is not read")


def _refused(error: ValidationError) -> SettingRefused:
    first = error.errors()[0]
    message = str(first["msg"]).removeprefix("Value error, ")
    named = re.search(r"`(\w+)`", message)
    field = ".".join(map(str, first["loc"])) or (named[1] if named else "options")
    return SettingRefused(field, message)


def _named_secrets(config: RunConfig) -> list[str]:
    """Return the names of secrets that settings refer to: for the program, for headers, and keys of providers."""
    of_headers = [parse_secret_header(text)[3] for text in config.secret_headers]
    of_providers = [each.key_env for each in (config.model_providers or {}).values() if each.key_env]
    return [*config.pass_env, *of_headers, *of_providers]


def _names(value: Any) -> Iterator[str]:
    """Yield the names of arguments, at every depth: one may hold the arguments of another call, as `fallbacks` does."""
    if isinstance(value, dict):
        yield from map(str, value)
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from _names(part)


def shown_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run without those that the service decides."""
    return {name: value for name, value in config.items() if name not in DECIDED or name in SHOWN_SETTINGS}
