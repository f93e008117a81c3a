"""Journals behind the HTTP API of a service: what the optimizer of one job has in place of a database."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gepa_client.errors import ClaimLost, JournalError, NoSuchRun, StoreDamaged, StoreUnavailable
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.http_connection import PATIENCE_S, ConnectionPool
from gepa_client.journal.http_messages import ERRORS, METHODS, StoreMethod, dumped, loaded
from gepa_client.journal.store import Store

TOKEN_FILE_VARIABLE = "GEPA_STORE_TOKEN_FILE"  # noqa: S105 - the name of a variable, not a token
"""Names the file with the job's token. It is read before each request, as it is renewed."""


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
        self._pool = ConnectionPool(url, self._headers, patience_s)

    def runs(self) -> list[StoredRun]:
        raise JournalError(f"{self.url} has no list of runs: give the whole id of one")

    def close(self) -> None:
        self._pool.close()

    def _post(self, name: str, run_id: str, arguments: Mapping[str, Any]) -> bytes:
        if self._pool.closed:
            raise JournalError(f"the store {self.url} is closed")
        status, answer = self._pool.post(f"/job/{quote(run_id, safe='')}/journal/{name}", dumped(arguments))
        if status != 200:
            raise self._error(status, answer, run_id)
        return answer

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
        if self._token_file is None:
            return {}
        try:
            token = self._token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise JournalError(f"the token file {self._token_file} cannot be read: {error}") from error
        return {"Authorization": f"Bearer {token}"}


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
