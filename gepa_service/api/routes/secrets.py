"""Secrets of a tenant: written and deleted here, and never returned."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field

from gepa_service.api.access import Manager, Parts
from gepa_service.api.app_state import Service
from gepa_service.api.openapi import documented
from gepa_service.api.pages import Page, Paging, RequestBody, View
from gepa_service.api.problems import Problem, not_found
from gepa_service.jobs.job_environment import may_be_secret
from gepa_service.model.tenant import Secret
from gepa_service.repositories.destinations import refused_host
from gepa_service.secrets.vault import Vault
from sandbox_runtime.gateway import SecretHeader as GatewayHeader

router = APIRouter(tags=["secrets"])

LONGEST_VALUE = 16_384
MOST_HEADERS = 50
Name = Annotated[
    str, Path(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64, description="As of a variable: MODEL_KEY.")
]


class SecretHeader(RequestBody):
    """A header that the gateway puts on requests to a host: `header: PREFIX VALUE`.

    `host`: in small letters, with `:PORT` if it is not 443. `prefix`: empty, or a word and a space.
    """

    host: Annotated[str, Field(max_length=260, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[1-9][0-9]{0,4})?$")]
    header: Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9-]+$")] = "authorization"
    prefix: Annotated[str, Field(max_length=100, pattern=r"^([\x21-\x3c\x3e-\x7e]+ )?$")] = "Bearer "


class SecretRequest(RequestBody):
    """A secret. `headers`: for which hosts the gateway puts it on, and how."""

    model_config = ConfigDict(hide_input_in_errors=True)

    value: Annotated[str, Field(min_length=1, max_length=LONGEST_VALUE, repr=False)]
    headers: Annotated[list[SecretHeader], Field(max_length=MOST_HEADERS)] = Field(default_factory=list)


class SecretView(View):
    """A secret without its value."""

    name: str
    headers: list[SecretHeader]
    created_at: datetime
    updated_at: datetime


class SecretPage(Page[SecretView]):
    """Secrets, in the order of their names."""


@router.put("/secrets/{name}", status_code=204)
def put_secret(name: Name, asked: SecretRequest, caller: Manager, service: Parts) -> None:
    """Write a secret, over one of this name. Jobs that start from now on use it."""
    if not may_be_secret(name):
        detail = f"`{name}` decides what programs of this service do, so it is never passed on: choose another name"
        raise Problem(422, "refused-name", "Name refused", detail, field="name")
    headers = [each.model_dump() for each in asked.headers]
    _check_headers(service, asked)
    _vault(service).put(caller.tenant, name, asked.value, headers)


@router.get("/secrets")
def secrets(caller: Manager, query: Paging) -> SecretPage:
    """List the secrets, without their values."""
    return SecretPage.read(SecretView.of, caller.records, Secret, query)


@router.delete("/secrets/{name}", status_code=204, responses=documented(404))
def delete_secret(name: Name, caller: Manager, service: Parts) -> None:
    """Delete a secret."""
    if not _vault(service).delete(caller.tenant, name):
        raise not_found("secret")


def _check_headers(service: Service, asked: SecretRequest) -> None:
    """Raise a problem if the gateway cannot, or may not, set a header with the secret."""
    for at, each in enumerate(asked.headers):
        try:
            GatewayHeader(each.host, each.header, asked.value, each.prefix)
        except ValueError as error:
            raise Problem(422, "wrong-header", "Header refused", str(error), field=f"headers.{at}") from None
        if (reason := refused_host(each.host, service.repositories.allow_networks)) is not None:
            raise Problem(422, "wrong-header", "Header refused", reason, field=f"headers.{at}.host")


def _vault(service: Service) -> Vault:
    if service.vault is None:
        detail = "the operator of this service has given it no master key, so that it keeps no secrets"
        raise Problem(409, "no-master-key", "No master key", detail)
    return service.vault
