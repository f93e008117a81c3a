"""One attempt at a work, where the engine placed it: its folder, its process, and its reports."""

import contextlib
import math
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx

from evolverpc_common.files import remove_tree, replace_file
from evolverpc_common.installation import installed_version
from evolverpc_common.network_addresses import free_port, is_loopback
from evolverpc_common.redaction import Secrets
from gepa_client.errors import summary
from gepa_client.run.output_folder import LOG as RUN_LOG
from gepa_service.engines.engine import EngineRefused
from gepa_service.jobs.job_environment import Place, basic_environment, cache_of, folder_of
from gepa_service.jobs.job_logs import JobLogs
from gepa_service.jobs.messages import (
    OTLP_ENDPOINT,
    OTLP_HEADERS,
    AttemptService,
    Begun,
    Ended,
    Front,
    Message,
    OptimizeOrder,
    Order,
    ProgramOrder,
    Report,
    Spent,
    Stopped,
    Wanted,
    failed,
)
from gepa_service.jobs.process_main import LOG
from gepa_service.jobs.shared_processes import TICK_S, RunningWork, SharedProcesses
from gepa_service.records import RecordError, RecordsUnavailable

T = TypeVar("T")
LOOK_S = 0.5
"""Seconds between two reports: cancelled work ends within this and a tick."""

PROGRESS_S = 2.0
"""Seconds between two reports of what was printed and how far the work is."""

RENEW_S = 240.0
"""Seconds after which the file of the optimizer's token is written again; each is valid for several times as long."""

AWAY_S = 60.0
"""Seconds without the service after which an attempt gives up, as the next one may have been placed."""

STOP_S = 90.0
"""Seconds that a process may take to end after it was asked to."""

LATE_S = 300.0
"""Seconds beside the `timeout_s` of a batch or step for the start of its sandboxes; then the process is ended."""

CANCEL_S = 15.0

ANSWER_S = 300.0
"""Seconds for an answer: the end of work may have a repository fetched."""

CONNECT_S = 5.0


class _Over(Exception):
    """The work is no longer this attempt's: it was cancelled, or another attempt has begun."""


class Attempt:
    """Do work until it ends, is stopped, or is over for this attempt. Call `run` in a thread of its own.

    `service`: keeps the records. `shared`: the processes that do work. `stop`: set to have the work handed back.
    """

    def __init__(self, place: Place, service: AttemptService, shared: SharedProcesses, stop: threading.Event) -> None:
        self._place = place
        self._service = service
        self._shared = shared
        self._stop = stop
        self._stopped: Stopped | None = None
        self._stop_by = math.inf
        self._secrets = Secrets()
        self._wanted = Wanted()
        self._looked = self._renewed = time.monotonic()
        self._reported = -math.inf
        self._work: Begun
        self._folder: Path
        self._logs: JobLogs

    def run(self) -> None:
        """Run it. What keeps the service from taking reports ends the attempt; the next one continues the work."""
        begun = _repeated(self._service.begin)
        if begun is None:
            return
        self._work = begun
        self._folder = folder_of(self._place, begun.work.id, begun.work.attempts)
        self._secrets = Secrets(begun.redacted, declared=True)
        printed = {"job": self._folder / LOG, "driver": self._folder / "results" / RUN_LOG}
        self._logs = JobLogs(printed, self._secrets)
        self._logs.add(f"attempt {begun.work.attempts} begins")
        forward, port = self._place.forward, free_port()
        forwarded = contextlib.nullcontext() if forward is None else forward(port)
        with contextlib.suppress(_Over), forwarded as url:
            self._process(None if url is None else Front(port=port, url=url))

    def _process(self, front: Front | None) -> None:
        with contextlib.ExitStack() as after:
            after.callback(self._clean)
            self._prepare()
            order, program = self._order(front), (self._work.work.tenant, self._work.work.repo_url)
            process = self._shared.begin(program, order, self._environment(), self._work.git, self._secrets)
            after.callback(process.end, STOP_S)
            try:
                ended = self._watched(process)
                process.end(STOP_S)
                self._end(ended)
            except (_Over, RecordError):
                process.end(CANCEL_S, at_once=True)
                self._settle(process)
                raise

    def _prepare(self) -> None:
        for path in (self._folder, self._folder / "home", self._folder / "tmp"):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write_token(self._work.token)

    def _clean(self) -> None:
        self._token.unlink(missing_ok=True)
        for earlier in range(1, self._work.work.attempts):
            remove_tree(folder_of(self._place, self._work.work.id, earlier))
        remove_tree(self._folder / "tmp" if self._work.work.what == "optimize" else self._folder)

    def _environment(self) -> dict[str, str]:
        cache = cache_of(self._work.work.tenant, self._place.cache)
        basic = basic_environment(self._folder, at_modal=self._place.sandbox == "modal")
        return {**basic, "GIT_CONFIG_NOSYSTEM": "1", "XDG_CACHE_HOME": str(cache)}

    def _order(self, front: Front | None) -> Order:
        begun, work = self._work, self._work.work
        settings = {**work.settings, "sandbox": self._place.sandbox, "repo": work.repo_url}
        if work.ref is not None:
            settings["ref"] = work.ref
        if begun.headers:
            settings["secret_headers"] = [*settings.get("secret_headers", []), *begun.headers]
        common: dict[str, Any] = {
            "id": work.id,
            "folder": self._folder,
            "settings": settings,
            "front": front,
            "secrets": begun.secrets,
            "redacted": begun.redacted,
            "allow_networks": begun.allow_networks,
        }
        if work.program is not None:
            own = {"program": work.program, "done": begun.done, "warm_mb": self._shared.warm_mb}
            return ProgramOrder(**common, what=work.what, **own)
        isolated = self._place.sandbox == "bubblewrap"
        collector = {name: os.environ[name] for name in (OTLP_ENDPOINT, OTLP_HEADERS) if name in os.environ}
        own = {"api": self._place.api, "token_file": self._token, "isolated": isolated, "collector": collector}
        return OptimizeOrder(**common, **own)

    @property
    def _token(self) -> Path:
        return self._folder / "token"

    def _write_token(self, token: str) -> None:
        replace_file(self._token, token + "\n", mode=0o600)
        self._renewed = time.monotonic()

    # --- the process --------------------------------------------------------------------------------------------------

    def _watched(self, process: RunningWork) -> Ended:
        """Report what happens while the process runs; return how it ended. Raises `_Over`, `RecordsUnavailable`."""
        last: Ended | None = None
        held: Message | None = None
        program = self._work.work.program
        longest_s = math.inf if program is None else program.timeout_s + LATE_S
        late = time.monotonic() + longest_s
        while held is not None or not process.is_silent:
            self._report_if_due()
            self._obey(process)
            if time.monotonic() > late:
                process.end(CANCEL_S, at_once=True)
                last, late = failed("run", f"it took longer than {longest_s:g} s"), math.inf
            held = held or process.next()
            if isinstance(held, Ended):
                last = last or held
            elif held is not None and not self._send(Report(message=held)):
                time.sleep(TICK_S)
                continue
            held = None
        return last or Ended(status="interrupted", reason="the process ended before its work was over")

    def _report_if_due(self) -> None:
        """Report if it is time, and renew the token. Raises `_Over`, and `RecordsUnavailable` after `AWAY_S`."""
        moment = time.monotonic()
        progress = moment - self._reported >= PROGRESS_S
        if progress or moment - self._looked >= LOOK_S:
            if progress:
                self._logs.read()
            if self._send(Report(logs=self._logs.unsent, progress=progress)) and progress:
                self._reported = moment
        if self._wanted.token and moment - self._renewed >= RENEW_S:
            self._write_token(self._wanted.token)

    def _send(self, report: Report) -> bool:
        """Return whether the service took a report. Raises `_Over`, and `RecordsUnavailable` after `AWAY_S`."""
        try:
            self._wanted = self._service.report(report)
        except RecordsUnavailable:
            if time.monotonic() - self._looked > AWAY_S:
                raise
            return False
        self._looked = time.monotonic()
        self._logs.sent(report.logs)
        if self._wanted.is_over:
            raise _Over
        return True

    def _obey(self, process: RunningWork) -> None:
        """Have the process stop if that is wanted; end it if it does not."""
        wanted: Stopped | None = "service" if self._stop.is_set() else self._wanted.stop
        if wanted is not None and self._stopped is None:
            self._stopped, self._stop_by = wanted, time.monotonic() + STOP_S
            process.stop()
        elif time.monotonic() > self._stop_by:
            process.end(0.0, at_once=True)

    def _end(self, ended: Ended) -> None:
        """Report the end, and what was printed until then. Raises `RecordsUnavailable` after `AWAY_S`."""
        self._logs.read(last=True)
        report = Report(message=ended, logs=self._logs.unsent, stopped=self._stopped, redacted=self._work.redacted)
        _repeated(lambda: self._service.report(report))

    def _settle(self, process: RunningWork) -> None:
        """Report what the ended process of work that is over has spent and printed, if the service still takes it."""
        self._logs.read(last=True)
        reports = [Report(logs=self._logs.unsent)]
        while not process.is_silent:
            message = process.next()
            if isinstance(message, Spent):
                reports.append(Report(message=message))
        with contextlib.suppress(RecordError):  # it is lost, as at the death of this process
            for report in reports:
                self._service.report(report)


def _repeated(call: Callable[[], T]) -> T:
    """Return what the call returns, which is repeated while the service is away. Raises `RecordsUnavailable`."""
    until = time.monotonic() + AWAY_S
    while True:
        try:
            return call()
        except RecordsUnavailable:
            if time.monotonic() >= until:
                raise
            time.sleep(TICK_S)


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
        answer = self._post("begin", "{}")
        return None if answer is None or answer == b"null" else Begun.model_validate_json(answer)

    def report(self, report: Report) -> Wanted:
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
            # none is kept warm: the next work may be placed on another node
            with SharedProcesses(place.folder, keep_warm=False) as shared:
                Attempt(place, service, shared, stop).run()
        except OSError as error:
            reason = f"the node {socket.gethostname()} cannot be used: {error}"
            service.report(Report(message=Ended(status="interrupted", reason=reason)))
