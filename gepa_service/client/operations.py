"""The operations of the API, a method each, made from its routes; requests and answers are the models of the API."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any

from fastapi.routing import APIRoute

from gepa_service.api.app import create_app
from gepa_service.api.audit_log import WRITES
from gepa_service.api.route_table import routes_of
from gepa_service.client.connection import Connection, quoted

LEFT_OUT = {
    "/github/callback",
    "/github/webhook",
    "/metrics",
    "/session",
    "/session/ways",
    "/job/{job_id}/stream",
}
"""Routes for browsers, GitHub and Prometheus, and the one that `ServiceClient.follow` reads."""

NAMES = {"/rollouts/batch/{batch_id}/cancel": "cancel_batch"}
"""Methods whose route has the name of another one."""


@dataclass(frozen=True)
class Operation:
    """One request. `returns`: the type of its answer; None for none, bytes for a document. `query`: its parameters."""

    verb: str
    path: str
    returns: Any
    query: tuple[str, ...]
    signature: Signature

    def send(self, connection: Connection, arguments: Mapping[str, Any]) -> Any:
        """Send the request, and return its answer. `arguments`: bound by the signature."""
        path = self.path.format(**{name: quoted(value) for name, value in arguments.items() if isinstance(value, str)})
        given: dict[str, Any] = {
            "body": arguments.get("body"),
            "query": {name: arguments.get(name) for name in self.query},
            "idempotency_key": arguments.get("idempotency_key"),
        }
        if self.returns is bytes:
            return connection.bytes_of(self.verb, path, accept="text/html", **given)
        if self.returns is None:
            connection.bytes_of(self.verb, path, **given)
            return None
        return connection.model(self.returns, self.verb, path, **given)


@functools.cache
def operations() -> Mapping[str, Operation]:
    """Return the operations by the names of their methods."""
    app, found = create_app(None), dict[str, Operation]()
    document = app.openapi()
    for route in routes_of(app):
        if isinstance(route, APIRoute) and route.include_in_schema and route.path_format not in LEFT_OUT:
            [verb] = route.methods
            name = NAMES.get(route.path_format) or str(route.name)
            assert name not in found, f"several routes are named {name}: give them names in NAMES"  # noqa: S101
            found[name] = _operation(route, verb, document["paths"][route.path_format][verb.lower()])
    return found


def _operation(route: APIRoute, verb: str, described: Mapping[str, Any]) -> Operation:
    by_place = {
        place: tuple(each["name"] for each in described.get("parameters", ()) if each["in"] == place)
        for place in ("path", "query")
    }
    is_document = "text/html" in described["responses"].get("200", {}).get("content", {})
    answer = route.response_model or route.responses.get(200, {}).get("model")

    def parameters() -> Iterator[Parameter]:
        for name in by_place["path"]:
            yield Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=str)
        if route.body_field is not None:
            model = route.body_field.field_info.annotation
            yield Parameter("body", Parameter.POSITIONAL_OR_KEYWORD, annotation=model)
        for name in (*by_place["query"], *(["idempotency_key"] if verb in WRITES else [])):
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=None)

    returns = bytes if is_document else None if route.status_code == 204 else answer
    signature = Signature([*parameters()], return_annotation=returns)
    return Operation(verb, route.path_format, returns, by_place["query"], signature)


class Operations(Connection):
    """One request for each method, see `operations`. Raises `ServiceProblem` and `ServiceUnreachable`."""

    def __getattr__(self, name: str) -> Any:
        found = operations().get(name)
        if found is None:
            raise AttributeError(f"the API has no operation {name}; it has {', '.join(operations())}")

        def call(*given: Any, **named: Any) -> Any:
            return found.send(self, found.signature.bind(*given, **named).arguments)

        call.__signature__ = found.signature  # type: ignore[attr-defined]  # what `help` shows
        return call

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *operations()]
