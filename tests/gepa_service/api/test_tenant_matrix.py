"""Every route, by every kind of key, for own, foreign and absent resources: no tenant reaches what is another's.

The rows are the application's own routes: a route without an example request fails.
"""

import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from gepa_service.api.access import permission_of, routes_of
from gepa_service.api.app import create_app
from gepa_service.auth.permissions import PERMISSIONS, Permission
from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from gepa_service.service import Service
from tests.gepa_service.api.conftest import Client
from tests.gepa_service.api.examples_of_routes import ABSENT, EXAMPLES, MARKER, RESOURCES, Example

ROLES = {
    "viewer": ("acme", "viewer"),
    "editor": ("acme", "editor"),
    "owner": ("acme", "owner"),
    "job token": ("acme", "job"),
    "attempt token": ("acme", "attempt"),
    "other tenant's owner": ("beta", "owner"),
}
NO_KEY = None
"""A caller without a key, as one whose key is expired or revoked (`test_problems.py`)."""

LARGE = 10**9
UNLIMITED = Quotas(requests_per_minute=LARGE, jobs_queued=LARGE)


def table(app: FastAPI) -> dict[str, Permission | None]:
    """The routes of an application, by `METHOD PATH`, with what each requires."""
    return {
        f"{method} {route.path}": permission_of(route)
        for route in routes_of(app)
        for method in (route.methods or set()) - {"HEAD"}
    }


TABLE = table(create_app(None))


def expected(kind: str | None, required: Permission | None, example: Example, owner: str | None) -> int:
    """The rule: first who calls, then what the role permits, then whose the resource is."""
    if required is None:
        return example.status
    if kind is NO_KEY:
        return 401
    tenant, role = ROLES[kind]
    if required not in PERMISSIONS[role]:
        return 403
    if example.resource is None or example.upserts or owner == tenant:
        return example.status
    return 404


def without_time(response: httpx.Response) -> tuple[int, bytes, list[tuple[str, str]]]:
    return (
        response.status_code,
        response.content,
        sorted(each for each in response.headers.items() if each[0] != "x-request-id"),
    )


def foreign_records(path: Path) -> list[Any]:
    """What is stored of beta, but for what the API notes of beta's own requests."""
    connection = sqlite3.connect(path)
    try:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE name GLOB 'record_*' AND type = 'table'")
        kinds = sorted({name.removeprefix("record_") for (name,) in tables} - {"audit", "usage"})
        rows = [
            (kind, *row)
            for kind in kinds
            for row in connection.execute(f"SELECT tenant, id, version, body FROM record_{kind} ORDER BY tenant, id")  # noqa: S608
        ]
    finally:
        connection.close()
    return [row for row in rows if row[1] == "beta" or (row[1] == TENANTS and '"beta"' in row[4])]


def test_every_route_has_an_example_and_every_example_a_route() -> None:
    assert EXAMPLES.keys() == TABLE.keys()


def test_public_routes_are_these_alone() -> None:
    public = {name for name, required in TABLE.items() if required is None}
    assert public == {
        "GET /",
        "GET /assets/{name}",
        "POST /session",
        "DELETE /session",
        "GET /session/ways",
        "GET /session/oidc",
        "GET /session/oidc/callback/{place:path}",
        "GET /openapi.json",
        "GET /health",
        "GET /ready",
        "GET /metrics",
        "GET /github/callback",
        "POST /github/webhook",
    }


async def test_no_caller_gets_more_than_its_role_and_its_tenants_resources(
    call: Client, service: Service, tmp_path: Path
) -> None:
    for tenant in service.records.page(Tenant, TENANTS):
        service.records.replace(tenant.model_copy(update={"quotas": UNLIMITED}))
    RESOURCES["job of the attempt token"](service, "acme")
    for make in RESOURCES.values():  # what lists must not show
        make(service, "beta")
    for name in sorted(TABLE):
        await ask_as_everyone(call, service, tmp_path / "records.db", name)


async def ask_as_everyone(call: Client, service: Service, records: Path, name: str) -> None:
    """Ask a route by each kind of caller for own, foreign and absent resources."""
    example, required = EXAMPLES[name], TABLE[name]
    foreign = ABSENT if example.resource is None else RESOURCES[example.resource](service, "beta")
    before = foreign_records(records)
    for kind in (NO_KEY, *ROLES) if required is not None else (NO_KEY, "viewer", "other tenant's owner"):
        is_beta = kind == "other tenant's owner"  # the last one
        if is_beta:
            assert foreign_records(records) == before, name
        own = ABSENT if example.resource is None else RESOURCES[example.resource](service, "acme")
        ids = {"acme": own, "beta": foreign, None: ABSENT}
        responses: dict[str | None, httpx.Response] = {}
        for owner in ids if example.resource is not None else ["acme"]:
            response = await asked(call, kind, name, ids[owner])
            assert response.status_code == expected(kind, required, example, owner), (name, kind, owner, response.text)
            assert is_beta or MARKER not in response.text + str(response.headers), (name, kind, owner)
            responses[owner] = response
        if example.resource is not None:
            others = "acme" if is_beta else "beta"
            assert without_time(responses[others]) == without_time(responses[None]), (name, kind)


async def asked(call: Client, kind: str | None, name: str, id_: str) -> httpx.Response:
    (method, path), example = name.split(" ", 1), EXAMPLES[name]
    headers = {key.replace("-", "_"): value for key, value in example.headers.items()}
    return await call(kind, method, example.path(path, id_) + example.query, example.content(id_), **headers)


@pytest.mark.parametrize(("kind", "path"), [("job token", "journal/run"), ("attempt token", "attempt/begin")])
async def test_the_token_of_a_process_reaches_no_other_job_of_its_own_tenant(
    call: Client, service: Service, kind: str, path: str
) -> None:
    RESOURCES["job of the attempt token"](service, "acme")
    other = RESOURCES["pending job"](service, "acme")
    responses = [await call(kind, "POST", f"/job/{id_}/{path}", {}) for id_ in (other, ABSENT)]
    assert without_time(responses[0]) == without_time(responses[1])
    assert responses[0].status_code == 404
