"""The settings of an operator: variables `GEPA_SERVICE_...`, which the API and the workers of a service share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

PREFIX = "GEPA_SERVICE_"


class OperatorError(Exception):
    """The service cannot be started like this; the text names the setting and the remedy."""


def _parts(value: Any) -> Any:
    return tuple(part for part in value.replace(",", " ").split() if part) if isinstance(value, str) else value


def _pairs(value: Any) -> Any:
    return tuple(part.split("|", 1) for part in _parts(value)) if isinstance(value, str) else value


class OperatorSettings(BaseModel):
    """Where the service keeps its data, and what it allows. Each field is a variable: `GEPA_SERVICE_RECORDS`, ..."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    records: Annotated[str, Field(min_length=1, description="The records: a SQLite file, or a mongodb:// URL.")]
    journals: Annotated[str, Field(min_length=1, description="The runs: a SQLite file, or a mongodb:// URL.")]
    public_url: Annotated[
        str, Field(pattern=r"^https?://[^/?#@]+/?$", description="By which others reach the API, without a path.")
    ]
    api_url: Annotated[
        str | None,
        Field(pattern=r"^https?://[^/?#@]+/?$", description="By which workers reach the API, if by another."),
    ] = None
    work_folder: Annotated[Path, Field(description="The folder of what workers work on.")] = Path("service-work")
    sandbox: Annotated[
        Literal["bubblewrap", "process", "modal"], Field(description="What isolates the programs of tenants.")
    ] = "bubblewrap"
    allow_local: Annotated[
        bool, Field(description="Whether folders of this machine may be connected: for a service of one person.")
    ] = False
    allow_networks: Annotated[
        tuple[str, ...],
        BeforeValidator(_parts),
        Field(description="Networks besides public ones, such as 10.1.0.0/16."),
    ] = ()
    oidc_issuers: Annotated[
        tuple[tuple[str, str], ...],
        BeforeValidator(_pairs),
        Field(description="Issuers whose tokens are accepted, as ISSUER|AUDIENCE, separated by spaces."),
    ] = ()
    github_app_id: Annotated[str | None, Field(description="The service's GitHub App; all five variables or none.")] = (
        None
    )
    github_app_slug: Annotated[str | None, Field(description="Its name in URLs.")] = None
    github_app_key_file: Annotated[Path | None, Field(description="The file of its private key.")] = None
    github_client_id: Annotated[str | None, Field(description="Its client id.")] = None
    github_client_secret: Annotated[str | None, Field(repr=False, description="Its client secret.")] = None
    github_webhook_secret: Annotated[str | None, Field(repr=False, description="What GitHub signs webhooks with.")] = (
        None
    )


NOT_HERE = frozenset({"MASTER_KEY", "MASTER_KEY_FILE", "MASTER_KEY_COMMAND", "KEY", "URL"})
"""Variables of this prefix that are no settings of an operator: the master key's, and those of a user."""


def variable_of(field: str) -> str:
    """Return the variable of a setting."""
    return PREFIX + field.upper()


def read_operator_settings(environment: Mapping[str, str]) -> OperatorSettings:
    """Return the settings in the environment. Raises `OperatorError`."""
    given = {
        name.removeprefix(PREFIX): value for name, value in environment.items() if name.startswith(PREFIX) and value
    }
    values = {name.lower(): value for name, value in given.items() if name not in NOT_HERE}
    try:
        return OperatorSettings.model_validate(values)
    except ValidationError as error:
        raise OperatorError("\n".join(map(_message, error.errors()))) from None


def _message(error: Any) -> str:
    field = str(error["loc"][0])
    variable = variable_of(field)
    described = OperatorSettings.model_fields.get(field)
    if error["type"] == "missing" and described is not None:
        return f"set {variable}: {described.description}"
    if error["type"] == "extra_forbidden":
        known = ", ".join(variable_of(name) for name in OperatorSettings.model_fields)
        return f"there is no setting {variable}; there are: {known}"
    return f"{variable}: {error['msg'][:1].lower()}{error['msg'][1:]}"
