"""Requests to a service: the key, errors as problems, answers as models."""

import json
import urllib.parse
from collections.abc import Mapping
from typing import Any, Self

import httpx
from pydantic import BaseModel

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


class Connection:
    """Use it in a `with` block, or call `close`. `key`: of an API key, or a token of an OIDC issuer.

    `tenant`: for a member of several tenants. `timeout_s`: of each request.
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


def quoted(name: str) -> str:
    """Return a part of a path."""
    return urllib.parse.quote(name, safe="")


def problem_of(answer: httpx.Response) -> ServiceProblem:
    """Return the error of an answer that was read."""
    try:
        body = json.loads(answer.content)
    except ValueError:
        body = {"detail": answer.text[:1000]}
    return ServiceProblem(answer.status_code, body if isinstance(body, dict) else {"detail": str(body)[:1000]})
