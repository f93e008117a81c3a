"""The client: the operations of the API, and the events of a job as they happen."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx

from gepa_service.client.connection import ServiceUnreachable, problem_of
from gepa_service.client.operations import Operations

SILENT_S = 60.0
"""A stream that sends nothing for this long, not even a comment, is lost."""

RETRY_S = 1.0
AWAY_S = 60.0
"""Seconds for which the service may be unreachable: a restart takes less."""


class ServiceClient(Operations):
    """A client of a service; see `Connection` for its arguments."""

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
