"""Runs checks against one endpoint, one after the other, each with a bound on its time."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable

from pydantic import ValidationError

from gepa_client.conformance.applies import reason_to_skip
from gepa_client.conformance.cases import Check, load_checks
from gepa_client.conformance.matching import ABSENT, shown
from gepa_client.conformance.messages import NotJson, read
from gepa_client.conformance.outcomes import CheckOutcome, Report, Verdict
from gepa_client.conformance.steps import CheckFailed, Run
from gepa_client.conformance.template import Unknown, lookup
from gepa_client.conformance.transport import Lost, Transport, Unconnected
from gepa_client.errors import ConnectionLost
from gepa_client.transport.address import refused
from protocol import DiscoverResult, JsonValue
from protocol.errors import Unauthorized

DISCOVER_TIMEOUT_S = 30.0
HTTP_UNAUTHORIZED = 401
NO_DISCOVERY = "`discover` had no answer that fits the contract"


async def run_conformance(
    url: str,
    token: str | None = None,
    *,
    checks: Iterable[Check] | None = None,
    on_outcome: Callable[[CheckOutcome], None] | None = None,
    allow_insecure: bool = False,
) -> Report:
    """Run `checks` (all when not given) that apply to the endpoint; `on_outcome` hears of each as it ends.

    `token`: else from the environment (`GEPA_TOKEN`).

    Raises:
        Refused: the address or token cannot be used. ConnectionLost: nobody listens there.
        Unauthorized: the server refuses the token, so that nothing can be said of it.
    """
    chosen = tuple(load_checks() if checks is None else checks)
    outcomes: list[CheckOutcome] = []
    async with Transport(url, token, allow_insecure=allow_insecure) as transport:
        discovery, complaint = await _discover(transport)
        for check in chosen:
            outcome = await _outcome(check, transport, discovery, complaint)
            outcomes.append(outcome)
            if on_outcome is not None:
                on_outcome(outcome)
        return Report(url=transport.url, endpoint=_described(discovery), outcomes=tuple(outcomes))


async def _discover(transport: Transport) -> tuple[JsonValue, str]:
    """What the endpoint says of itself, or None and why that cannot be used; the checks judge its envelope."""
    request = {"jsonrpc": "2.0", "id": "discover", "method": "discover", "params": {}}
    try:
        answer = await transport.send(json.dumps(request).encode(), timeout_s=DISCOVER_TIMEOUT_S)
        if answer.status == HTTP_UNAUTHORIZED:
            raise Unauthorized(refused(transport.token))
        message = read(answer.body)
    except Unconnected as error:
        raise ConnectionLost(str(error), sent=False) from error
    except (Lost, NotJson) as error:
        return None, f"{NO_DISCOVERY}: {error}"
    result = lookup(message, "result")
    try:
        DiscoverResult.model_validate(None if result is ABSENT else result)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "result"
        return None, f"{NO_DISCOVERY}: `{where}`: {first['msg']}; HTTP {answer.status}, found {shown(message)}"
    return result, ""


async def _outcome(check: Check, transport: Transport, discovery: JsonValue, complaint: str) -> CheckOutcome:
    if discovery is None:
        first_of_all = check.id == "core.discover.complete"
        verdict = Verdict.FAILED if first_of_all else Verdict.SKIPPED
        return CheckOutcome(check, verdict, complaint if first_of_all else NO_DISCOVERY)
    skip = reason_to_skip(check, discovery, has_token=transport.token is not None)
    if skip is not None:
        return CheckOutcome(check, Verdict.SKIPPED, skip)
    started = time.monotonic()
    reason = await _failure(check, Run(transport, discovery))
    failed = Verdict.FAILED if check.level == "must" else Verdict.WARNED
    return CheckOutcome(check, failed if reason else Verdict.PASSED, reason, time.monotonic() - started)


async def _failure(check: Check, run: Run) -> str:
    """Why the check does not hold; empty where it does."""
    try:
        async with asyncio.timeout(check.timeout_s):
            for number, step in enumerate(check.steps, 1):
                try:
                    await run.step(step)
                except (CheckFailed, Unknown) as failure:
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
