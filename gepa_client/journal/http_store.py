"""Journals behind the HTTP API of a service: what the optimizer of one job has in place of a database."""

import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from gepa_client.errors import ClaimLost, JournalError, NoSuchRun, StoreDamaged, StoreUnavailable, summary
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.http_messages import ERRORS, METHODS, StoreMethod, dumped, loaded
from gepa_client.journal.store import Store
from gepa_client.transport.address import http_url, socket_of

TOKEN_FILE_VARIABLE = "GEPA_STORE_TOKEN_FILE"  # noqa: S105 - the name of a variable, not a token
"""Names the file with the job's token. It is read before each request, as it is renewed."""

PATIENCE_S = 30.0
"""Seconds for which a request is repeated while the service is away; longer than a restart of it takes."""

ANSWER_S = 60.0
"""Seconds without a byte of a response after which a connection counts as lost."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
TRY_AGAIN = frozenset({429, 502, 503, 504})
"""Statuses of a service that is starting, overloaded or away behind a proxy."""

KEPT = 8
"""Idle connections that are kept."""


class HttpStore(Store):
    """A `Store` whose runs are those of jobs, at the API `url`: `http://`, `https://`, or `http+unix://SOCKET`.

    A token of a job opens the run of that job alone, so there is no list of runs. Every request is repeated while the
    service is away, at most for `patience_s`; all methods are safe to repeat. A token that is refused means that this
    process may not drive the run any more: `ClaimLost`.
    """

    def __init__(self, url: str, *, token_file: Path | None = None, patience_s: float = PATIENCE_S) -> None:
        self.url = url
        given = os.environ.get(TOKEN_FILE_VARIABLE)
        self._token_file = token_file or (Path(given) if given else None)
        self._patience_s = patience_s
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEPT)
        trusted = ssl.create_default_context()  # the certificates of this machine, not those of a package
        transport = httpx.HTTPTransport(verify=trusted, uds=socket_of(url), limits=limits, trust_env=False)
        self._http = httpx.Client(base_url=http_url(url), transport=transport, timeout=ANSWER_S, trust_env=False)

    def runs(self) -> list[StoredRun]:
        raise JournalError(f"{self.url} has no list of runs: give the whole id of one")

    def delete(self, run_id: str) -> None:
        raise JournalError(f"{self.url} lets no optimizer delete the run {run_id}")

    def close(self) -> None:
        self._http.close()

    def _post(self, name: str, run_id: str, arguments: Mapping[str, Any]) -> bytes:
        path, body = f"/job/{quote(run_id, safe='')}/journal/{name}", dumped(arguments)
        until, pause_s = time.monotonic() + self._patience_s, FIRST_PAUSE_S
        while not self._http.is_closed:
            try:
                answer = self._http.post(path, content=body, headers=self._headers())
            except httpx.TransportError as error:
                trouble: Exception = StoreUnavailable(f"the service does not answer: {summary(error)}")
            else:
                if answer.status_code == 200:
                    return answer.content
                trouble = self._error(answer.status_code, answer.content, run_id)
                if answer.status_code not in TRY_AGAIN:
                    raise trouble
            if time.monotonic() + pause_s > until:
                raise trouble
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        raise JournalError(f"the store {self.url} is closed")

    def _error(self, status: int, answer: bytes, run_id: str) -> Exception:
        """Return the error of a response: by its code, else by its status."""
        try:
            problem = loaded(answer)
        except ValueError:
            problem = None
        members = problem if isinstance(problem, dict) else {}
        detail = str(members.get("detail") or f"HTTP status {status}")
        code = members.get("code")
        if isinstance(code, str) and code in ERRORS:
            return ERRORS[code](detail)
        if status in (401, 403):
            return ClaimLost(f"the service refuses the token of this job's process: {detail}")
        if status == 404:
            return NoSuchRun(f"{self.url} holds no run {run_id} for this token")
        if status >= 500 or status == 429:
            return StoreUnavailable(f"{self.url} is unavailable: {detail}")
        return JournalError(f"{self.url}: {detail}")

    def _headers(self) -> dict[str, str]:
        sent = {"Content-Type": "application/json"}
        if self._token_file is None:
            return sent
        try:
            token = self._token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise JournalError(f"the token file {self._token_file} cannot be read: {error}") from error
        return sent | {"Authorization": f"Bearer {token}"}


def _forwarded(method: StoreMethod) -> Callable[..., Any]:
    """Return the method of `HttpStore` that asks the service for its result."""

    def call(self: HttpStore, *given: Any, **named: Any) -> Any:
        arguments = method.signature.bind(self, *given, **named).arguments
        del arguments["self"]
        run_id = arguments["run"].id if method.takes_run else arguments.pop("run_id")
        answer = self._post(method.name, run_id, arguments)
        try:
            return method.result.validate_python(loaded(answer)["result"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreDamaged(f"{self.url} answered what is no journal's: {error}") from error

    return call


for _method in METHODS.values():
    setattr(HttpStore, _method.name, _forwarded(_method))
