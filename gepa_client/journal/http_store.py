"""Journals behind the HTTP API of a service: what the optimizer of one job has in place of a database."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import ValidationError

from gepa_client.errors import ClaimLost, JournalError, NoSuchRun, StoreDamaged, StoreUnavailable
from gepa_client.journal.entries import (
    AttemptFinished,
    CandidateRecord,
    Claim,
    Entry,
    RequestOutcome,
    Row,
    Spending,
    SteeringRequest,
    StoredAttempt,
    StoredRun,
)
from gepa_client.journal.http_connection import PATIENCE_S, ConnectionPool
from gepa_client.journal.http_messages import ERRORS, METHODS, ROW, ROWS, dumped, loaded
from gepa_client.journal.records import PAGE, ChainLink, changes_record

TOKEN_FILE_VARIABLE = "GEPA_STORE_TOKEN_FILE"  # noqa: S105 - the name of a variable, not a token
"""Names the file with the job's token. It is read before each request, as it is renewed."""


class HttpStore:
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

    def create(self, run: StoredRun, rows: Iterable[Row] = ()) -> None:
        self._call("create", run.id, run=run, rows=list(rows))

    def run(self, run_id: str) -> StoredRun:
        found: StoredRun = self._call("run", run_id)
        return found

    def runs(self) -> list[StoredRun]:
        raise JournalError(f"{self.url} has no list of runs: give the whole id of one")

    def update(self, run_id: str, changes: Mapping[str, Any], *, owner: str | None = None) -> None:
        changes_record(changes)
        self._call("update", run_id, changes=dict(changes), owner=owner)

    def claim(self, run_id: str, seen: Claim, owner: str, driver: str) -> bool:
        if self._call("claim", run_id, seen=seen, owner=owner, driver=driver):
            return True
        return self.run(run_id).claim.owner == owner  # it was claimed by a request whose response was lost

    def beat(self, run_id: str, owner: str, changes: Mapping[str, Any]) -> str | None:
        changes_record(changes)
        action: str | None = self._call("beat", run_id, owner=owner, changes=dict(changes))
        return action

    def release(self, run_id: str, owner: str) -> None:
        self._call("release", run_id, owner=owner)

    def write(self, run_id: str, owner: str, rows: Sequence[Row]) -> None:
        self._call("write", run_id, owner=owner, rows=list(rows))

    def entries(
        self, run_id: str, part: str, start: int = 0, limit: int = PAGE, *, largest: int | None = None
    ) -> list[Entry]:
        found: list[Entry] = self._call("entries", run_id, part=part, start=start, limit=limit, largest=largest)
        return found

    def links(self, run_id: str, part: str, start: int = 0, limit: int = PAGE) -> list[ChainLink]:
        found: list[ChainLink] = self._call("links", run_id, part=part, start=start, limit=limit)
        return found

    def chains(self, run_id: str) -> dict[str, int]:
        found: dict[str, int] = self._call("chains", run_id)
        return found

    def entries_at(self, run_id: str, part: str, numbers: Sequence[int]) -> list[Entry]:
        found: list[Entry] = self._call("entries_at", run_id, part=part, numbers=list(numbers))
        return found

    def parts(self, run_id: str) -> dict[str, int]:
        found: dict[str, int] = self._call("parts", run_id)
        return found

    def drop(self, run_id: str, part: str, kind: str) -> None:
        self._call("drop", run_id, part=part, kind=kind)

    def attempts(self, run_id: str, part: str, start: int = 0) -> list[StoredAttempt]:
        found: list[StoredAttempt] = self._call("attempts", run_id, part=part, start=start)
        return found

    def failed_attempts(self, run_id: str) -> list[tuple[str, int, int]]:
        found: list[tuple[str, int, int]] = self._call("failed_attempts", run_id)
        return found

    def spending(self, run_id: str) -> list[Spending]:
        found: list[Spending] = self._call("spending", run_id)
        return found

    def spending_at(self, run_id: str, kind: str) -> dict[str, list[Spending]]:
        found: dict[str, list[Spending]] = self._call("spending_at", run_id, kind=kind)
        return found

    def candidates(self, run_id: str, start: int = 0) -> list[CandidateRecord]:
        found: list[CandidateRecord] = self._call("candidates", run_id, start=start)
        return found

    def finished_at(self, run_id: str, part: str, numbers: Sequence[int]) -> list[AttemptFinished]:
        found: list[AttemptFinished] = self._call("finished_at", run_id, part=part, numbers=list(numbers))
        return found

    def attempt_rows(self, run_id: str) -> Iterator[Row]:
        *lines, last = self._post(ROWS, run_id, {}).splitlines() or [b"{}"]
        with _understood(self.url):
            if loaded(last).get("count") != len(lines):
                raise StoreUnavailable(f"{self.url} ended a list of rows too early")
            for line in lines:
                yield ROW.validate_python(loaded(line))

    def add_request(self, run_id: str, request: SteeringRequest) -> None:
        self._call("add_request", run_id, request=request)

    def requests(self, run_id: str, *, waiting: bool = False) -> list[SteeringRequest]:
        found: list[SteeringRequest] = self._call("requests", run_id, waiting=waiting)
        return found

    def answer_request(
        self,
        run_id: str,
        request_id: str,
        outcome: RequestOutcome,
        *,
        number: int | None = None,
        reason: str | None = None,
    ) -> None:
        self._call("answer_request", run_id, request_id=request_id, outcome=outcome, number=number, reason=reason)

    def close(self) -> None:
        self._pool.close()

    def _call(self, name: str, run_id: str, **arguments: Any) -> Any:
        answer = self._post(name, run_id, arguments)
        with _understood(self.url):
            return METHODS[name].result.validate_python(loaded(answer)["result"])

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


class _understood:  # noqa: N801 - used as a function
    """Turns a response that is not what the method returns into `StoreDamaged`."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ValidationError | ValueError | KeyError | TypeError | AttributeError):
            raise StoreDamaged(f"{self._url} answered what is no journal's: {error}") from error
