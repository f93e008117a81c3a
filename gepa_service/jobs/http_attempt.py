"""The service as an attempt elsewhere reaches it: `AttemptService` over its HTTP API."""

import socket
import ssl
import threading
from typing import Self
from urllib.parse import urlsplit

import httpx

from evolverpc_common.installation import installed_version
from evolverpc_common.network_addresses import is_loopback
from gepa_client.errors import summary
from gepa_service.engines.engine import EngineRefused
from gepa_service.jobs.attempt import Attempt, Place
from gepa_service.jobs.attempt_messages import Begun, Report, Wanted
from gepa_service.jobs.shared_processes import SharedProcesses
from gepa_service.jobs.work_order import Ended
from gepa_service.records import RecordsUnavailable

ANSWER_S = 300.0
"""Seconds for an answer: the end of work may have a repository fetched."""

CONNECT_S = 5.0


class HttpAttemptService:
    """Used in a `with` block, by one thread. `api`: the address of the API. `token`: of the attempt.

    An API that does not answer, or not as expected, is `RecordsUnavailable`. If it refuses the token, another attempt
    has begun, or the work was deleted.
    """

    def __init__(self, api: str, work_id: str, token: str) -> None:
        self._token = token
        trusted = ssl.create_default_context()  # the certificates of this machine, not those of a package
        transport = httpx.HTTPTransport(verify=trusted, trust_env=False)
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S)
        base = f"{api}/job/{work_id}/attempt"
        self._http = httpx.Client(base_url=base, transport=transport, timeout=timeout, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def begin(self) -> Begun | None:
        """As of `AttemptService`."""
        answer = self._post("begin", "{}")
        return None if answer is None or answer == b"null" else Begun.model_validate_json(answer)

    def report(self, report: Report) -> Wanted:
        """As of `AttemptService`."""
        answer = self._post("report", report.model_dump_json())
        wanted = Wanted(is_over=True) if answer is None else Wanted.model_validate_json(answer)
        self._token = wanted.attempt_token or self._token
        return wanted

    def _post(self, name: str, body: str) -> bytes | None:
        """Return the answer; None if the token is refused. Raises `RecordsUnavailable`."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        try:
            answer = self._http.post(f"/{name}", content=body.encode(), headers=headers)
        except httpx.TransportError as error:
            raise RecordsUnavailable(f"the service does not answer: {summary(error)}") from None
        if answer.status_code in (401, 404):
            return None
        if answer.status_code != 200:
            raise RecordsUnavailable(f"the service answers {answer.status_code}: {answer.text[:500]}")
        return answer.content


def check_api(api: str) -> None:
    """Raise `EngineRefused` if secrets on their way from this address to attempts elsewhere could be read."""
    if not api.startswith("https://") and not is_loopback(urlsplit(api).hostname):
        raise EngineRefused(
            f"attempts on other machines get their tenants' secrets from --api, and {api} is plain http, which can be"
            " read on the way: put TLS in front of the API, and give its https:// address"
        )


def run_on_node(work_id: str, token: str, place: Place, version: str, stop: threading.Event) -> None:
    """Make an attempt on a node of an engine. `version`: of this package, as the dispatcher has it."""
    with HttpAttemptService(place.api, work_id, token) as service:
        try:
            if version != installed_version():
                raise OSError(f"it has version {installed_version()} of evolverpc, and the dispatcher {version}")
            with SharedProcesses(
                place.folder, keep_warm=False
            ) as shared:  # the next work may be placed on another node
                Attempt(place, service, shared, stop).run()
        except OSError as error:
            reason = f"the node {socket.gethostname()} cannot be used: {error}"
            service.report(Report(message=Ended(status="interrupted", reason=reason)))
