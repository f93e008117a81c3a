"""What follows when examples are `infra_error`: another attempt, or, by the results of others, the verdict."""

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gepa_client.fleet.endpoint import LONGEST_REQUESTED_S, growing_s
from gepa_client.transport.calls import FailedTry, evaluation_timeout_s
from gepa_client.transport.rpc_client import RpcClient
from protocol import Candidate

FAILURES = 3
"""Failures of a row after which the last is the candidate's, if few rows fail."""

MOST_FAILURES = 10
"""Failures after which it is, also if other rows get over theirs meanwhile.

A host that refuses a third of all calls fails a row three times in a row once in 27 rows, ten times once in 59,049.
"""

SUCCESSES = 3
"""Rows that must succeed meanwhile for each one that fails, so that those that fail are few: at most one in four."""

PROBED_FOR = 3
"""Failing rows up to which rows that have their results are run again, if too few others are sent meanwhile."""

ATTEMPTS = 3
"""Attempts of a call outside of a run."""

BACKOFF_S = 0.5
BACKOFF_FACTOR = 3.0
"""A short failure costs half a second, yet five attempts outlast many rate limits."""

Result = dict[str, Any]


LONGEST_REASON = 256
SUCCEEDED = ("ok", "rollout")


@dataclass(frozen=True)
class Failure:
    """Why an example was an `infra_error`. `host`: that failed, None if the result names none; `reason`: how."""

    host: str | None
    reason: str

    def __str__(self) -> str:
        return self.reason if self.host is None else f"{self.host} {self.reason}"


def failure_of(result: Mapping[str, Any]) -> Failure | None:
    """Return why a result is an `infra_error`, by the host that failed most often; None for any other status."""
    if result["status"] != "infra_error":
        return None
    hosts = result.get("hosts") or {}
    failed = {host: calls.get("failed", 0) for host, calls in sorted(hosts.items()) if calls.get("failed")}
    if not failed:
        return Failure(None, str((result.get("error") or {}).get("type") or "unknown")[:LONGEST_REASON])
    host = max(failed, key=failed.__getitem__)
    return Failure(host, hosts[host].get("reason") or "failed")


class HostEvidence:
    """What the rows of a run found at each endpoint, on the monotonic clock; and which hosts ask to wait.

    What counts is when an attempt was sent, as one from before an outage may still succeed during it. `probing`: held
    while rows are run again only to be evidence, which serves every row that fails.
    """

    def __init__(self) -> None:
        self._endpoints: dict[str, _Endpoint] = defaultdict(_Endpoint)
        self._free_at: dict[str, float] = {}
        self.probing = asyncio.Lock()

    def note(self, endpoint: str, row: str, result: Mapping[str, Any], sent: float) -> None:
        """Take the result of a row into account. `sent`: when its attempt was."""
        hosts = result.get("hosts") or {}
        for host, calls in hosts.items():
            if asked_s := calls.get("retry_after_s") if calls.get("failed") else None:
                free_at = time.monotonic() + min(asked_s, LONGEST_REQUESTED_S)
                self._free_at[host] = max(free_at, self._free_at.get(host, 0.0))
        if result["status"] == "cancelled":
            return
        at = self._endpoints[endpoint]
        at.ended.add(row, sent)
        if failure_of(result) is not None:
            at.failing.setdefault(row, []).append(time.monotonic())
            return
        met_failures = any(calls.get("failed") for calls in hosts.values())
        reached = any(calls.get("succeeded") for calls in hosts.values()) and not met_failures
        if result["status"] in SUCCEEDED or reached:
            at.succeeded.add(row, sent)
            if met_failures or row in at.failing:  # in the same attempt or in an earlier one
                at.recovered.add(row, sent)
        self.settled([row])

    def succeeded(self, endpoint: str, row: str, since: float) -> int:
        """Return how many other rows succeeded there in an attempt that was sent later."""
        return len(self._endpoints[endpoint].succeeded.others(row, since))

    def failing(self, endpoint: str, row: str) -> set[str]:
        """Return the other rows that failed there in their last attempt, and have no other result since."""
        return self._endpoints[endpoint].failing.keys() - {row}

    def may_pass(self, endpoint: str, row: str, since: float) -> bool:
        """Whether another row failed there and then succeeded, or failed once and has its second attempt yet to end."""
        failing = self._endpoints[endpoint].failing
        begun = any(other != row and len(times) == 1 and times[0] > since for other, times in failing.items())
        return begun or self.recovered(endpoint, row, since)

    def recovered(self, endpoint: str, row: str, since: float) -> bool:
        """Whether another row failed there and then succeeded in an attempt that was sent later."""
        return bool(self._endpoints[endpoint].recovered.others(row, since))

    def ended(self, endpoint: str, row: str, since: float) -> set[str]:
        """Return the other rows that were sent there later, and have ended."""
        return self._endpoints[endpoint].ended.others(row, since)

    def settled(self, rows: Iterable[str]) -> None:
        """Note that these rows have their results, or are tried no more: another candidate's success is no recovery."""
        for row, each in itertools.product(rows, self._endpoints.values()):
            each.failing.pop(row, None)

    def wait_s(self, host: str | None) -> float:
        """Return for how many seconds the host has asked to be left alone."""
        return max(self._free_at.get(host or "", 0.0) - time.monotonic(), 0.0)


class _Sent:
    """When the latest attempt of each row was sent, in the order in which they ended."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[float, float]] = {}

    def add(self, row: str, sent: float) -> None:
        self._rows.pop(row, None)
        self._rows[row] = (sent, time.monotonic())

    def others(self, row: str, since: float) -> set[str]:
        """Return the rows but this one whose attempt was sent later."""
        ended = itertools.takewhile(lambda each: each[1][1] > since, reversed(self._rows.items()))
        return {other for other, (sent, _) in ended if sent > since and other != row}


@dataclass
class _Endpoint:
    """`ended`, `succeeded`, `recovered`: rows, by what their attempts were; `failing`: when rows failed since."""

    ended: _Sent = field(default_factory=_Sent)
    succeeded: _Sent = field(default_factory=_Sent)
    recovered: _Sent = field(default_factory=_Sent)
    failing: dict[str, list[float]] = field(default_factory=dict)


@dataclass
class _Example:
    """An example of the call. `since`: when it first failed; `failures`: how often.

    `succeeded`: how many other rows did that were sent after that, by the time when the present attempt was sent.
    `failure`: of the last attempt.
    """

    row: str
    since: float = 0.0
    failures: int = 0
    succeeded: int = 0
    failure: Failure | None = None


class ExampleRetries:
    """The failures of the examples of one call, over all its attempts.

    An example that failed before an outage began, or during it, fails again until the outage is over. So its failure is
    the candidate's only if it fails once more in an attempt that was sent after other rows' attempts, sent after the
    first failure, had succeeded at the same endpoint; and if few rows fail: this one alone, or at most one in four.
    """

    def __init__(self, evidence: HostEvidence, rows: Sequence[str]) -> None:
        self._evidence = evidence
        self._examples = [_Example(row) for row in rows]
        self._endpoint, self._sent = "", float("-inf")
        self._cancelled = False

    def sending(self, endpoint: str, *, again: bool = False) -> None:
        """Note that an attempt is about to be sent; `again`: the one before is, to collect its answer."""
        self._endpoint = endpoint
        if again:
            return
        self._sent = time.monotonic()
        for example in self._examples:
            if example.failures:
                example.succeeded = self._evidence.succeeded(endpoint, example.row, example.since)

    def judge(self, results: Sequence[Result]) -> list[Result]:
        """Return the results of the attempt, those that are the candidate's failure as `program_error`.

        The others stay as they are; `open` states whether an example must be tried again.
        """
        self._cancelled = any(result["status"] == "cancelled" for result in results)
        pairs = list(zip(self._examples, results, strict=False))  # no results of an answer that was too large
        for example, result in pairs:
            self._evidence.note(self._endpoint, example.row, result, self._sent)
        return [self._judged(example, result) for example, result in pairs]

    @property
    def open(self) -> bool:
        """Whether an example has no conclusive result."""
        return self._cancelled or any(example.failure is not None for example in self._examples)

    @property
    def outage(self) -> bool:
        """Whether nothing shows that an open example is one of few that fail, or that such failures pass."""
        failing = [example for example in self._examples if example.failure is not None]
        return self._cancelled or not all(map(self._is_no_outage, failing))

    def failed_tries(self) -> list[FailedTry]:
        """Return the examples that are tried again, as an `AttemptLog` records them."""
        return [
            FailedTry(at, example.row, failure.host, failure.reason)
            for at, example in enumerate(self._examples)
            if (failure := example.failure) is not None
        ]

    def requested_s(self) -> float:
        """Return for how many seconds the hosts of the open examples ask to be left alone."""
        failures = (example.failure for example in self._examples)
        return max((self._evidence.wait_s(each.host) for each in failures if each is not None), default=0.0)

    def unclear(self, endpoint: str) -> set[str] | None:
        """Return the rows that show nothing more, if an example's next failure can be judged only by further ones."""
        for example in self._examples:
            if example.failures < FAILURES - 1:
                continue
            failing = self._evidence.failing(endpoint, example.row)
            ended = self._evidence.ended(endpoint, example.row, example.since)
            if len(failing) < PROBED_FOR and len(ended - failing) < SUCCESSES * (len(failing) + 1):
                return ended | {each.row for each in self._examples}
        return None

    def _judged(self, example: _Example, result: Result) -> Result:
        failure = example.failure = failure_of(result)
        if failure is None:
            return result
        if not example.failures:
            example.since = time.monotonic()
        example.failures += 1
        passes = self._evidence.may_pass(self._endpoint, example.row, example.since)
        if example.failures < (MOST_FAILURES if passes else FAILURES) or not self._few_fail(example, example.succeeded):
            return result
        example.failure = None
        self._evidence.settled([example.row])
        return _of_the_candidate(result, failure, example.failures)

    def _is_no_outage(self, example: _Example) -> bool:
        if self._few_fail(example, self._evidence.succeeded(self._endpoint, example.row, example.since)):
            return True
        passes = self._evidence.recovered(self._endpoint, example.row, example.since)
        return passes and example.failures < MOST_FAILURES

    def _few_fail(self, example: _Example, succeeded: int) -> bool:
        failing = len(self._evidence.failing(self._endpoint, example.row))
        return succeeded >= (SUCCESSES * (failing + 1) if failing else 1)


async def evaluated_alone(
    client: RpcClient,
    evidence: HostEvidence,
    candidate: Candidate,
    batch: Sequence[Mapping[str, Any]],
    *,
    traced: bool,
    group: str | None = None,
) -> tuple[list[Result], float]:
    """Evaluate rows in one call outside of a run, up to `ATTEMPTS` times; the last attempt's results and its seconds.

    Without a verdict an `infra_error` stays one. Raises: as `RpcClient.evaluate`.
    """
    retries = ExampleRetries(evidence, [row["id"] for row in batch])
    for attempt in itertools.count(1):
        retries.sending(client.url)
        began = time.monotonic()
        limit_s, call_id = evaluation_timeout_s(client.example_limit_s, len(batch)), client.new_call_id()
        answer = await client.evaluate(
            candidate, batch, capture_traces=traced, call_id=call_id, group=group, timeout_s=limit_s
        )
        seconds, results = time.monotonic() - began, retries.judge(answer["results"])
        if attempt >= ATTEMPTS or not retries.open:
            return results, seconds
        await asyncio.sleep(pause_s(attempt, retries))
    raise AssertionError("unreachable")


def pause_s(failures: int, retries: ExampleRetries) -> float:
    """Return the seconds to wait after so many failures, and as long as hosts ask for."""
    return max(growing_s(BACKOFF_S, BACKOFF_FACTOR, failures - 1), retries.requested_s())


def _of_the_candidate(result: Result, failure: Failure, times: int) -> Result:
    error = result.get("error") or {"type": failure.reason, "message": ""}
    message = (
        f"failed {times} times (last: {failure}) while other rows succeeded, so that it counts as a failure of the "
        f"program on this row; the last error: {error['message']}"
    )
    return {**result, "status": "program_error", "score": None, "error": {**error, "message": message}}
