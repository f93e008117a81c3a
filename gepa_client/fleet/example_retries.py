"""What follows when examples are `infra_error`: another attempt, or the verdict that the failure is the candidate's."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gepa_client.fleet.host_evidence import Failure, HostEvidence, failure_of
from gepa_client.transport.calls import FailedTry

EQUAL_FAILURES = 3
"""Equal failures after which one is the candidate's, if other rows' calls to the host succeeded meanwhile."""

MOST_FAILURES = 10
"""Failures of any kind after which one is, also if other rows get over such failures meanwhile.

A host that refuses a third of all calls fails a row three times in a row once in 27 rows, ten times once in 59,049.
"""

ATTEMPTS = 3
"""Attempts of a call outside of a run."""

BACKOFF_S = 0.5
BACKOFF_FACTOR = 3.0

Result = dict[str, Any]


@dataclass
class _Example:
    """An example of the call. `since`: when it first failed; `failures`: how often, by kind.

    `answered`: hosts that answered calls of other rows after that, and before the present attempt was sent. `recorded`:
    the same by the record of an earlier process. `failure`: of the last attempt.
    """

    row: str
    since: float = 0.0
    failures: Counter[Failure] = field(default_factory=Counter)
    answered: set[str | None] = field(default_factory=set)
    recorded: set[str | None] = field(default_factory=set)
    failure: Failure | None = None


class ExampleRetries:
    """The failures of the examples of one call, over all its attempts.

    An example that failed before the outage of a host began, or during it, fails again until the outage is over. So its
    failure is the candidate's only if it fails once more in an attempt that was sent after another row's attempt, sent
    after the first failure, had succeeded at the same endpoint and host.
    """

    def __init__(self, evidence: HostEvidence, rows: Sequence[str], earlier: Sequence[FailedTry] = ()) -> None:
        self._evidence = evidence
        self._examples = [_Example(row) for row in rows]
        self._endpoint, self._sent = "", float("-inf")
        self._cancelled = False
        for at, tries in itertools.groupby(sorted(earlier, key=lambda each: each.at), key=lambda each: each.at):
            made = list(tries)
            if at < len(rows) and made[-1].others_answered:  # else it may have been an outage
                example = self._examples[at]
                example.since = float("-inf")
                example.failures.update(Failure(each.host, each.reason) for each in made)
                example.recorded = {made[-1].host}
                example.answered = {made[-1].host}

    def sending(self, endpoint: str, *, again: bool = False) -> None:
        """Note that an attempt is about to be sent; `again`: the one before is, to collect its answer."""
        self._endpoint = endpoint
        if again:
            return
        self._sent = time.monotonic()
        for example in self._examples:
            example.answered = {each.host for each in example.failures if self._others_answered(example, each)}

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
        """Whether nothing shows that the hosts of the open examples answer others."""
        return self._cancelled or not all(each.others_answered for each in self.failed_tries())

    def failed_tries(self) -> list[FailedTry]:
        """Return the examples that are tried again, as an `AttemptLog` records them."""
        return [
            FailedTry(at, example.row, failure.host, failure.reason, self._others_answered(example, failure))
            for at, example in enumerate(self._examples)
            if (failure := example.failure) is not None
        ]

    def requested_s(self) -> float:
        """Return for how many seconds the hosts of the open examples ask to be left alone."""
        failures = (example.failure for example in self._examples)
        return max((self._evidence.wait_s(each.host) for each in failures if each is not None), default=0.0)

    def unclear(self, endpoint: str) -> tuple[str, str | None] | None:
        """Return (row, host) of an example whose next failure decides, if no row was sent that can show more."""
        for example in self._examples:
            for failure, times in example.failures.items():
                if times < EQUAL_FAILURES - 1 or failure.host in example.recorded:
                    continue
                if not self._evidence.seen((endpoint, failure.host), example.row, example.since):
                    return example.row, failure.host
        return None

    def _judged(self, example: _Example, result: Result) -> Result:
        failure = example.failure = failure_of(result)
        if failure is None:
            return result
        if not example.failures:
            example.since = time.monotonic()
        example.failures[failure] += 1
        if failure.host not in example.answered or not self._too_often(example, failure):
            return result
        example.failure = None
        self._evidence.settled((self._endpoint, failure.host), example.row)
        return _of_the_candidate(result, failure, example.failures[failure])

    def _too_often(self, example: _Example, failure: Failure) -> bool:
        if example.failures.total() >= MOST_FAILURES:
            return True
        passes = self._evidence.may_pass((self._endpoint, failure.host), example.row, example.since)
        return example.failures[failure] >= EQUAL_FAILURES and not passes

    def _others_answered(self, example: _Example, failure: Failure) -> bool:
        place = (self._endpoint, failure.host)
        return failure.host in example.recorded or self._evidence.answered(place, example.row, example.since)


async def conclusive(
    retries: ExampleRetries, endpoint: str, evaluate: Callable[[], Awaitable[Sequence[Result]]]
) -> list[Result]:
    """Evaluate the examples up to `ATTEMPTS` times, outside of a run; without a verdict an `infra_error` stays one.

    Raises: what `evaluate` raises.
    """
    for attempt in itertools.count(1):
        retries.sending(endpoint)
        results = retries.judge(await evaluate())
        if attempt >= ATTEMPTS or not retries.open:
            return results
        await asyncio.sleep(pause_s(attempt, retries))
    raise AssertionError("unreachable")


def pause_s(failures: int, retries: ExampleRetries) -> float:
    """Return the seconds to wait after so many failures, and as long as hosts ask for."""
    return max(BACKOFF_S * BACKOFF_FACTOR ** (failures - 1), retries.requested_s())


def _of_the_candidate(result: Result, failure: Failure, times: int) -> Result:
    error = result.get("error") or {"type": failure.reason, "message": ""}
    others = "gave other rows their results" if failure.host is None else "answered other rows"
    message = (
        f"failed {times} times ({failure}) while {failure.host or 'the server'} {others}, so that it counts as a "
        f"failure of the program on this row; the last error: {error['message']}"
    )
    return {**result, "status": "program_error", "score": None, "error": {**error, "message": message}}
