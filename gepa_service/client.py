"""A client of a service, typed by the models of its API: `ServiceClient(url, key).optimize(OptimizeRequest(...))`."""

import json
import time
import urllib.parse
from collections.abc import Callable, Coroutine, Iterator, Mapping
from inspect import Parameter, Signature
from typing import Any, Self, TypeVar, overload

import httpx
from pydantic import BaseModel, TypeAdapter

from gepa_service.api import routes
from gepa_service.api.request_log import WRITES

A = TypeVar("A")

KEY = "idempotency_key"
_ROUTES: dict[Any, Any] = {route.endpoint: route for router in routes.ROUTERS for route in router.routes}

SILENT_S = 60.0
"""A stream that sends nothing for this long, not even a comment, is lost."""

RETRY_S = 1.0
AWAY_S = 60.0
"""Seconds for which the service may be unreachable: a restart takes less."""

ANSWER_S = 60.0


class ServiceProblem(Exception):
    """The service refused a request. `status`: of HTTP. `body`: the problem, with `type`, `detail`, `field`."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {body.get('detail') or body}")
        self.status = status
        self.body = dict(body)

    @property
    def type(self) -> str:
        """Return the kind of problem, such as `urn:evolverpc:not-found`."""
        return str(self.body.get("type", ""))


class ServiceUnreachable(Exception):
    """The service cannot be reached, or its answer was cut off; trying later can help."""


def problem_of(answer: httpx.Response) -> ServiceProblem:
    """Return the error of an answer that was read."""
    try:
        body = json.loads(answer.content)
    except ValueError:
        body = {"detail": answer.text[:1000]}
    return ServiceProblem(answer.status_code, body if isinstance(body, dict) else {"detail": str(body)[:1000]})


@overload
def operation(endpoint: Callable[..., Any], answer: type[A]) -> Callable[..., A]: ...
@overload
def operation(endpoint: Callable[..., Coroutine[Any, Any, A]]) -> Callable[..., A]: ...
@overload
def operation(endpoint: Callable[..., A]) -> Callable[..., A]: ...
def operation(endpoint: Callable[..., Any], answer: Any = None) -> Callable[..., Any]:
    """Return the method that makes the request of a route.

    Its arguments are the parts of the path and the `body`, in this order; by name those of the query, and of a write
    `idempotency_key`. `answer`: the type of what it returns, if the route does not declare it.
    """
    route = _ROUTES[endpoint]
    [verb] = route.methods
    parts, type_ = list(route.param_convertors), answer or route.response_model
    ordered = [*parts, *(["body"] if route.body_field is not None else [])]
    named = [*_query_of(route), *([KEY] if verb in WRITES else [])]
    is_optional = route.body_field is not None and not route.body_field.field_info.is_required()
    defaults = {"body": None} if is_optional else {}
    signature = Signature(
        [
            Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=defaults.get(name, Parameter.empty))
            for name in ordered
        ]
        + [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in named]
    )

    def call(self: "ServiceClient", *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        path = route.path_format.format(**{name: urllib.parse.quote(given.pop(name), safe="") for name in parts})
        body, key = given.pop("body", None), given.pop(KEY, None)
        content = self.request(verb, path, query=given, body=body, idempotency_key=key)
        if type_ is bytes:
            return content
        return None if type_ is None else TypeAdapter(type_).validate_json(content)

    call.__name__, call.__doc__ = endpoint.__name__, endpoint.__doc__
    return call


def _query_of(route: Any) -> list[str]:
    """Return the names of the query's parameters."""
    found: list[str] = []
    for field in route.dependant.query_params:
        type_ = field.field_info.annotation
        is_model = isinstance(type_, type) and issubclass(type_, BaseModel)
        found += type_.model_fields if is_model else [field.alias]
    return found


class ServiceClient:
    """A client of a service. Use it in a `with` block, or call `close`.

    `key`: an API key, or a token of an OIDC issuer. `tenant`: for a member of several tenants. `timeout_s`: of each
    request.

    One request for each method, but for `follow`. Raises `ServiceProblem` and `ServiceUnreachable`.
    """

    def __init__(self, url: str, key: str, *, tenant: str | None = None, timeout_s: float = ANSWER_S) -> None:
        headers = {"Authorization": f"Bearer {key}", **({} if tenant is None else {"Evolverpc-Tenant": tenant})}
        self._http = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def request(
        self, method: str, path: str, *, query: Mapping[str, Any], body: BaseModel | None, idempotency_key: str | None
    ) -> bytes:
        """Return the answer to a request. Raises `ServiceProblem` and `ServiceUnreachable`."""
        try:
            answer = self._http.request(
                method,
                path,
                params={name: value for name, value in query.items() if value is not None},
                json=None if body is None else body.model_dump(mode="json", exclude_unset=True),
                headers={} if idempotency_key is None else {"Idempotency-Key": idempotency_key},
            )
        except httpx.TransportError as error:
            raise ServiceUnreachable(f"{method} {path}: {error}") from error
        if answer.is_error:
            raise problem_of(answer)
        return answer.content

    health = operation(routes.health.health)
    ready = operation(routes.health.ready)
    connect_git = operation(routes.repositories.connect_git)
    repositories = operation(routes.repositories.repositories)
    delete_repository = operation(routes.repositories.delete_repository)
    install = operation(routes.github.install)
    confirm = operation(routes.github.confirm)
    optimize = operation(routes.jobs.optimize)
    jobs = operation(routes.jobs.jobs)
    job = operation(routes.jobs.job)
    change_budget = operation(routes.jobs.change_budget)
    cancel = operation(routes.jobs.cancel)
    delete_job = operation(routes.jobs.delete_job)
    pause = operation(routes.jobs.pause)
    resume = operation(routes.jobs.resume)
    events = operation(routes.job_events.events, routes.job_events.EventPage)
    logs = operation(routes.job_events.logs)
    report = operation(routes.job_events.report, bytes)
    certificate = operation(routes.job_events.certificate)
    programs = operation(routes.programs.programs)
    active = operation(routes.programs.active)
    program = operation(routes.programs.program)
    promote = operation(routes.programs.promote)
    rollback = operation(routes.programs.rollback)
    deliver = operation(routes.delivery.deliver)
    submit = operation(routes.steps_and_batches.submit)
    batches = operation(routes.steps_and_batches.batches)
    batch = operation(routes.steps_and_batches.batch)
    delete_batch = operation(routes.steps_and_batches.delete_batch)
    cancel_batch = operation(routes.steps_and_batches.cancel_batch)
    execute = operation(routes.steps_and_batches.execute)
    steps = operation(routes.steps_and_batches.steps)
    step = operation(routes.steps_and_batches.step)
    cancel_step = operation(routes.steps_and_batches.cancel_step)
    delete_step = operation(routes.steps_and_batches.delete_step)
    register = operation(routes.webhooks.register)
    webhooks = operation(routes.webhooks.webhooks)
    delete = operation(routes.webhooks.delete)
    ping = operation(routes.webhooks.ping)
    deliveries = operation(routes.webhooks.deliveries)
    create_key = operation(routes.tenant.create_key)
    keys = operation(routes.tenant.keys)
    delete_key = operation(routes.tenant.delete_key)
    add_member = operation(routes.tenant.add_member)
    members = operation(routes.tenant.members)
    delete_member = operation(routes.tenant.delete_member)
    put_secret = operation(routes.tenant.put_secret)
    secrets = operation(routes.tenant.secrets)
    delete_secret = operation(routes.tenant.delete_secret)
    usage = operation(routes.tenant.usage)
    audit = operation(routes.tenant.audit)

    def follow(self, job_id: str, *, away_s: float = AWAY_S) -> Iterator[dict[str, Any]]:
        """Yield the events of a job as they happen, until its last one; a lost connection is made again.

        `away_s`: after how many seconds without an event a lost connection is given up.

        The events of the job itself are of the kind `job`. `{"event": "reset"}` precedes those of another server, which
        come from the beginning.

        Raises:
            ServiceProblem: the job is unknown, or the key is refused.
            ServiceUnreachable: the service was unreachable for `away_s`.
        """
        last: str | None = None
        lost: float | None = None
        while True:
            try:
                for name, id_, event in self._stream(job_id, last):
                    last, lost = id_ or last, None
                    if name == "end":
                        return
                    if name != "revoked":  # the next request has the reason
                        yield {"event": name} if name else event
            except (httpx.TransportError, ServiceUnreachable) as error:
                lost = lost or time.monotonic()
                if time.monotonic() - lost > away_s:
                    raise ServiceUnreachable(f"the events of {job_id}: {error}") from error
            time.sleep(RETRY_S)

    def _stream(self, job_id: str, last: str | None) -> Iterator[tuple[str, str, Any]]:
        headers = {} if last is None else {"Last-Event-ID": last}
        timeout = httpx.Timeout(SILENT_S)
        with self._http.stream("GET", f"/job/{job_id}/stream", headers=headers, timeout=timeout) as answer:
            if answer.is_error:
                answer.read()
                if answer.status_code in (429, 502, 503, 504):
                    raise ServiceUnreachable(str(problem_of(answer)))
                raise problem_of(answer)
            fields: dict[str, str] = {}
            for line in answer.iter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "data" in fields:
                    yield fields.get("event", ""), fields.get("id", ""), json.loads(fields["data"])
                    fields = {}
