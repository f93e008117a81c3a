"""Run checks against one endpoint, one after the other, each within a time limit, and report what they found."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Literal

from pydantic import ValidationError

from gepa_client.conformance.cases import ABSENT, CORE, Check, as_json, load_checks, lookup, mismatches, shown
from gepa_client.conformance.check_run import CheckFailed, CheckRun, NotJson, read
from gepa_client.conformance.raw_transport import NoAnswer, NotConnected, RawRequest, RawTransport
from gepa_client.errors import ConnectionLost
from gepa_client.transport.address import TOKEN_VARIABLE, refused
from protocol import DiscoverResult, JsonValue
from protocol.errors import Unauthorized

DISCOVER_TIMEOUT_S = 30.0
PROBE_S = 10.0
"""Seconds in which a server answers `discover` after a check in which it did not answer."""

PROBE_EVALUATE_S = 75.0
"""Seconds in which it then runs an example: those of a check that has failed may take a minute before."""

HTTP_UNAUTHORIZED = 401
DISCOVERS = "core.discover.complete"
"""The check that states what is wrong with an answer of `discover`; without a right one no other can run."""

NO_DISCOVERY = "`discover` had no answer that fits the contract"
Level = Literal["core", "full"]


class Verdict(StrEnum):
    """`warned`: a SHOULD does not hold. `skipped`: does not apply. `not_verified`: applies, and could not run."""

    PASSED = "passed"
    FAILED = "failed"
    WARNED = "warned"
    SKIPPED = "skipped"
    NOT_VERIFIED = "not_verified"


@dataclass(frozen=True)
class CheckOutcome:
    """One check's verdict.

    `reason`: why it has not passed. Of one that failed or warned also what was `expected`, what was `found`, and the
    `request` as a line to paste into a shell, empty if it is about none; a long body is written to a temporary file.
    """

    check: Check
    verdict: Verdict
    reason: str = ""
    expected: str = ""
    found: str = ""
    request: Callable[[], str] = str
    seconds: float = 0.0

    @property
    def page(self) -> str:
        """The section of the page that requires it, as a link."""
        return f"docs/protocol.md#{self.check.section.lower().replace(' ', '-')}"

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as `--json` prints it."""
        return {
            "id": self.check.id,
            "title": self.check.title,
            "level": self.check.level,
            "part": self.check.part,
            "page": self.page,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "expected": self.expected,
            "found": self.found,
            "request": self.request(),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class ConformanceReport:
    """All outcomes for one endpoint, which is a URL.

    `described`: server and program as `discover` names them. `lost`: why the run ended before its end; empty if it did
    not.
    """

    endpoint: str
    described: str
    outcomes: tuple[CheckOutcome, ...]
    lost: str = ""

    def count(self, verdict: Verdict) -> int:
        """Return how many checks have this verdict."""
        return sum(outcome.verdict is verdict for outcome in self.outcomes)

    @property
    def conforms(self) -> bool:
        """Every check that applies ran, and no MUST is broken."""
        return set(self.parts.values()) == {Verdict.PASSED}

    @property
    def parts(self) -> dict[str, Verdict]:
        """Core and every capability that was to be checked -> `passed`, `failed` or `not_verified`."""
        found: dict[str, set[Verdict]] = {}
        for outcome in self.outcomes:
            if outcome.verdict is not Verdict.SKIPPED:
                found.setdefault(outcome.check.part, set()).add(outcome.verdict)
        return {part: _of_part(verdicts) for part, verdicts in found.items()}

    @property
    def counts(self) -> str:
        """`N passed, M failed`."""
        return f"{self.count(Verdict.PASSED)} passed, {self.count(Verdict.FAILED)} failed"

    @property
    def last_line(self) -> str:
        """The state of core and of every capability, such as `core verified; failed: async; NOT verified: refs`."""
        parts = self.parts
        line = [f"core {_IN_WORDS[parts.pop(CORE)]}"] if CORE in parts else []
        for verdict, words in _IN_WORDS.items():
            named = [part for part, state in parts.items() if state is verdict]
            line += [f"{words}: {', '.join(named)}"] if named else []
        return "; ".join(line) or "nothing verified: no check applies"

    def as_json(self) -> dict[str, Any]:
        """Return the report as `--json` prints it."""
        return {
            "endpoint": self.endpoint,
            "described": self.described,
            "conforms": self.conforms,
            "lost": self.lost or None,
            "parts": {part: verdict.value for part, verdict in self.parts.items()},
            **{verdict.value: self.count(verdict) for verdict in Verdict},
            "checks": [outcome.as_json() for outcome in self.outcomes],
        }


_IN_WORDS = {Verdict.NOT_VERIFIED: "NOT verified", Verdict.FAILED: "failed", Verdict.PASSED: "verified"}


def _of_part(verdicts: set[Verdict]) -> Verdict:
    if Verdict.FAILED in verdicts:
        return Verdict.FAILED
    return Verdict.NOT_VERIFIED if Verdict.NOT_VERIFIED in verdicts else Verdict.PASSED


async def run_conformance(
    url: str,
    token: str | None = None,
    *,
    command: Sequence[str] = (),
    checks: Iterable[Check] | None = None,
    level: Level = "full",
    on_outcome: Callable[[CheckOutcome], None] | None = None,
    allow_insecure: bool = False,
) -> ConformanceReport:
    """Run `checks` (default all) of this level, those of core first; `on_outcome` is called as each check ends.

    `command`: of the program over stdio that the server stands before, for what only such a program does. `token`:
    else from the environment (`GEPA_TOKEN`). A server that answers nothing any more ends the run; the report states it
    as `lost`.

    Raises:
        Refused: the address or token cannot be used. ConnectionLost: `discover` has no answer. Unauthorized: the server
            refuses the token, so nothing can be checked.
    """
    given = load_checks("stdio" if command else "http") if checks is None else checks
    applicable = [check for check in given if check.part == CORE or level == "full"]
    chosen = sorted(applicable, key=lambda check: (check.part != CORE, not check.id.startswith("core.discover.")))
    async with RawTransport(url, token, allow_insecure=allow_insecure) as transport:
        run = _Run(transport, command)
        await run.discover()
        for check in chosen:
            outcome = await run.outcome(check, is_last=check is chosen[-1])
            run.outcomes.append(outcome)
            if on_outcome is not None:
                on_outcome(outcome)
        return ConformanceReport(transport.address, run.described, tuple(run.outcomes), run.lost)


class _Run:
    """The endpoint, what it states about itself, and the outcomes so far."""

    def __init__(self, transport: RawTransport, command: Sequence[str]) -> None:
        self._transport = transport
        self._command = command
        self._discovery: JsonValue = {}  # until it has an answer that fits the contract
        self.outcomes: list[CheckOutcome] = []
        self.lost = ""

    async def discover(self) -> None:
        """Read the endpoint's description, if it fits the contract; the checks judge the answer."""
        try:
            answer = await self._transport.send(_request("discover", {}), timeout_s=DISCOVER_TIMEOUT_S)
        except NoAnswer as error:
            what = "" if isinstance(error, NotConnected) else "`discover`: "
            raise ConnectionLost(f"{what}{error}", sent=False) from error
        if answer.status == HTTP_UNAUTHORIZED:
            raise Unauthorized(refused(self._transport.token))
        with contextlib.suppress(NotJson, ValidationError):
            result = lookup(read(answer.body), "result")
            DiscoverResult.model_validate(result)
            self._discovery = result

    async def outcome(self, check: Check, *, is_last: bool) -> CheckOutcome:
        """Run one check; after one without an answer, find out whether the server still answers."""
        if not self._discovery and check.id != DISCOVERS:
            return CheckOutcome(check, Verdict.NOT_VERIFIED, NO_DISCOVERY)
        skip = reason_to_skip(check, self._discovery)
        if skip is not None:
            return CheckOutcome(check, Verdict.SKIPPED, skip)
        missing = what_is_missing(check, self._discovery, has_token=self._transport.token is not None)
        if self.lost or missing is not None:
            return CheckOutcome(check, Verdict.NOT_VERIFIED, self.lost or missing or "")
        return await self._run(check, is_last=is_last)

    @property
    def described(self) -> str:
        """Server and program as `discover` names them."""
        if not self._discovery:
            return "unknown"
        server, program = self._discovery["server"], self._discovery["program"]
        named = " ".join(filter(None, (server["name"], server["version"])))
        return f"{named} ({server['language']}), program {program['name']}"

    async def _run(self, check: Check, *, is_last: bool) -> CheckOutcome:
        run, started = CheckRun(self._transport, self._discovery, self._command), time.monotonic()
        try:
            await run.check(check)
        except CheckFailed as error:
            failure = error
        else:
            return CheckOutcome(check, Verdict.PASSED, seconds=time.monotonic() - started)
        if failure.lost is not None:
            never_began = isinstance(failure.lost, NotConnected) and not run.answered
            ran = [o.check.id for o in self.outcomes if o.verdict not in (Verdict.SKIPPED, Verdict.NOT_VERIFIED)]
            ran += [] if never_began else [check.id]
            await self._probe(ran[-1] if ran else "none", evaluates=not is_last)
            if self.lost and never_began:
                return CheckOutcome(check, Verdict.NOT_VERIFIED, self.lost)
        failure.request = failure.request or run.last_request
        step = f"step {run.at} of {len(check.steps)}: " if len(check.steps) > 1 else ""
        return self._broken(check, failure, step, time.monotonic() - started)

    def _broken(self, check: Check, failure: CheckFailed, step: str, seconds: float) -> CheckOutcome:
        transport, token = self._transport, self._transport.token

        def without_token(text: str) -> str:
            return text.replace(token, f"${TOKEN_VARIABLE}") if token else text

        return CheckOutcome(
            check,
            Verdict.FAILED if check.level == "must" else Verdict.WARNED,
            without_token(f"{step}{failure}"),
            expected=without_token(failure.expected),
            found=without_token(failure.found),
            request=partial(transport.shell_line, failure.request) if failure.request is not None else str,
            seconds=seconds,
        )

    async def _probe(self, last: str, *, evaluates: bool) -> None:
        """Set `lost` if the server does not answer, or if it `evaluates` and does not. `last`: the last that ran."""
        requests = [(_request("discover", {}), PROBE_S)]
        if evaluates and lookup(self._discovery, "program.name") == "conformance":
            seed = self._discovery["program"]["seed_candidate"]
            params = {"candidate": seed, "batch": [{"id": "a", "data": {}}]}
            requests.append((_request("evaluate", params), PROBE_EVALUATE_S))
        for request, timeout_s in requests:
            try:
                await self._transport.send(request, timeout_s=timeout_s)
            except NoAnswer as error:
                method = json.loads(request.body)["method"]
                self.lost = f"the server is lost: `{method}`: {error}; the last check that ran: {last}"
                return


def _request(method: str, params: dict[str, Any]) -> RawRequest:
    return RawRequest(as_json({"jsonrpc": "2.0", "id": method, "method": method, "params": params}))


def reason_to_skip(check: Check, discovery: JsonValue) -> str | None:
    """Return why the check does not apply, or None if it does."""
    offered = set(discovery.get("capabilities", ()))
    absent = [name for name in check.requires if name not in offered]
    if absent:
        return f"not offered: {', '.join(absent)}"
    present = [name for name in check.lacks if name in offered]
    if present:
        return f"offered: {', '.join(present)}"
    for path, matcher in check.when.items():
        value = lookup(discovery, path)
        if mismatches(value, matcher):
            return f"{path} is {'not stated' if value is ABSENT else shown(value)}"
    return None


def what_is_missing(check: Check, discovery: JsonValue, *, has_token: bool) -> str | None:
    """Return what a check that applies needs and the endpoint or the runner has not, or None if nothing."""
    served = lookup(discovery, "program.name")
    if check.program is not None and served != check.program:
        return f"needs the {check.program} program; this endpoint serves {served}"
    if check.needs_token and not has_token:
        return "needs a token to vary, and none was given"
    for name, matcher in check.needs.items():
        stated = discovery["limits"].get(name)
        if unmet := mismatches(math.inf if stated is None else stated, matcher):
            states = "none" if stated is None else f"{stated:g}"
            return f"needs `{name}` of {unmet[0].expected}; this endpoint states {states}"
    return None
