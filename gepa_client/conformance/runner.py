"""Run checks against one endpoint, one after the other, each within a time limit, and collect their outcomes."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from gepa_client.conformance.case_language import ABSENT, UnknownName, lookup, mismatches, shown
from gepa_client.conformance.cases import Check, load_checks
from gepa_client.conformance.raw_transport import NoAnswer, NotConnected, RawTransport
from gepa_client.conformance.steps import CheckFailed, CheckRun, NotJson, read
from gepa_client.errors import ConnectionLost
from gepa_client.transport.address import refused
from protocol import DiscoverResult, JsonValue
from protocol.errors import Unauthorized

DISCOVER_TIMEOUT_S = 30.0
HTTP_UNAUTHORIZED = 401
NO_DISCOVERY = "`discover` had no answer that fits the contract"


class Verdict(StrEnum):
    """`warned`: a SHOULD does not hold. `skipped`: the check does not apply to this endpoint."""

    PASSED = "passed"
    FAILED = "failed"
    WARNED = "warned"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class CheckOutcome:
    """One check's verdict; `reason`: why it failed, warned or was skipped."""

    check: Check
    verdict: Verdict
    reason: str = ""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as `--json` prints it."""
        return {
            "id": self.check.id,
            "title": self.check.title,
            "level": self.check.level,
            "section": self.check.section,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class ConformanceReport:
    """All outcomes for one endpoint. `endpoint`: server and program as `discover` names them."""

    url: str
    endpoint: str
    outcomes: tuple[CheckOutcome, ...]

    def count(self, verdict: Verdict) -> int:
        """Return how many checks have this verdict."""
        return sum(outcome.verdict is verdict for outcome in self.outcomes)

    @property
    def conforms(self) -> bool:
        """No MUST is broken, and something was checked."""
        return self.count(Verdict.FAILED) == 0 and self.count(Verdict.PASSED) > 0

    @property
    def last_line(self) -> str:
        """`N passed, M failed`."""
        return f"{self.count(Verdict.PASSED)} passed, {self.count(Verdict.FAILED)} failed"

    def as_json(self) -> dict[str, Any]:
        """Return the report as `--json` prints it."""
        return {
            "url": self.url,
            "endpoint": self.endpoint,
            "conforms": self.conforms,
            **{verdict.value: self.count(verdict) for verdict in Verdict},
            "checks": [outcome.as_json() for outcome in self.outcomes],
        }


async def run_conformance(
    url: str,
    token: str | None = None,
    *,
    checks: Iterable[Check] | None = None,
    on_outcome: Callable[[CheckOutcome], None] | None = None,
    allow_insecure: bool = False,
) -> ConformanceReport:
    """Run `checks` (default all) that apply to the endpoint; `on_outcome` is called as each check ends.

    `token`: else from the environment (`GEPA_TOKEN`).

    Raises:
        Refused: the address or token cannot be used. ConnectionLost: no server listens there.
        Unauthorized: the server refuses the token, so nothing can be checked.
    """
    chosen = tuple(load_checks() if checks is None else checks)
    outcomes: list[CheckOutcome] = []
    async with RawTransport(url, token, allow_insecure=allow_insecure) as transport:
        discovery, complaint = await _discover(transport)
        for check in chosen:
            outcome = await _outcome(check, transport, discovery, complaint)
            outcomes.append(outcome)
            if on_outcome is not None:
                on_outcome(outcome)
        return ConformanceReport(url=transport.url, endpoint=_described(discovery), outcomes=tuple(outcomes))


async def _discover(transport: RawTransport) -> tuple[JsonValue, str]:
    """Return the endpoint's description, or None and why it cannot be used; the checks judge its envelope."""
    request = {"jsonrpc": "2.0", "id": "discover", "method": "discover", "params": {}}
    try:
        answer = await transport.send(json.dumps(request).encode(), timeout_s=DISCOVER_TIMEOUT_S)
        if answer.status == HTTP_UNAUTHORIZED:
            raise Unauthorized(refused(transport.token))
        message = read(answer.body)
    except NotConnected as error:
        raise ConnectionLost(str(error), sent=False) from error
    except (NoAnswer, NotJson) as error:
        return None, f"{NO_DISCOVERY}: {error}"
    result = lookup(message, "result")
    try:
        DiscoverResult.model_validate(None if result is ABSENT else result)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "result"
        return None, f"{NO_DISCOVERY}: `{where}`: {first['msg']}; HTTP {answer.status}, found {shown(message)}"
    return result, ""


async def _outcome(check: Check, transport: RawTransport, discovery: JsonValue, complaint: str) -> CheckOutcome:
    if discovery is None:
        first_of_all = check.id == "core.discover.complete"
        verdict = Verdict.FAILED if first_of_all else Verdict.SKIPPED
        return CheckOutcome(check, verdict, complaint if first_of_all else NO_DISCOVERY)
    skip = reason_to_skip(check, discovery, has_token=transport.token is not None)
    if skip is not None:
        return CheckOutcome(check, Verdict.SKIPPED, skip)
    started = time.monotonic()
    reason = await _failure(check, CheckRun(transport, discovery))
    failed = Verdict.FAILED if check.level == "must" else Verdict.WARNED
    return CheckOutcome(check, failed if reason else Verdict.PASSED, reason, time.monotonic() - started)


async def _failure(check: Check, run: CheckRun) -> str:
    """Return why the check does not hold; empty if it does."""
    try:
        async with asyncio.timeout(check.timeout_s):
            for number, step in enumerate(check.steps, 1):
                try:
                    await run.step(step)
                except (CheckFailed, UnknownName) as failure:
                    return f"step {number}: {failure}" if len(check.steps) > 1 else str(failure)
    except RecursionError:
        return "an answer nests too deep to be read"
    except TimeoutError:
        return f"not done after {check.timeout_s:g} s"
    return ""


def _described(discovery: JsonValue) -> str:
    if discovery is None:
        return "unknown"
    server, program = discovery["server"], discovery["program"]
    return f"{server['name']} {server['version']} ({server['language']}), program {program['name']}"


def reason_to_skip(check: Check, discovery: JsonValue, *, has_token: bool) -> str | None:
    """Return why the check does not apply, or None if it does."""
    offered = set(discovery.get("capabilities", ()))
    absent = [name for name in check.requires if name not in offered]
    if absent:
        return f"not offered: {', '.join(absent)}"
    present = [name for name in check.lacks if name in offered]
    if present:
        return f"offered: {', '.join(present)}"
    served = discovery["program"]["name"]
    if check.program is not None and served != check.program:
        return f"needs the {check.program} program; this endpoint serves {served}"
    if check.needs_token and not has_token:
        return "needs a token to vary, and none was given"
    for path, matcher in check.when.items():
        value = lookup(discovery, path)
        if mismatches(value, matcher):
            return f"{path} is {'not stated' if value is ABSENT else shown(value)}"
    return None
