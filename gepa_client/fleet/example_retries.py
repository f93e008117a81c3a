"""What follows when examples are `infra_error`: another attempt, or the verdict that the failure is the candidate's."""

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gepa_client.fleet.cooldown import growing_s
from gepa_client.fleet.host_evidence import Failure, HostEvidence, failure_of
from gepa_client.transport.calls import FailedTry
from protocol import Candidate

if TYPE_CHECKING:
    from gepa_client.transport.rpc import RpcClient  # heavy

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


@dataclass
class _Example:
    """An example of the call. `since`: when it first failed; `failures`: how often.

    `succeeded`: how many other rows did that were sent after that, by the time when the present attempt was sent.
    `recorded`: by the record of an earlier process, few rows failed. `failure`: of the last attempt.
    """

    row: str
    since: float = 0.0
    failures: int = 0
    succeeded: int = 0
    recorded: bool = False
    failure: Failure | None = None


class ExampleRetries:
    """The failures of the examples of one call, over all its attempts.

    An example that failed before an outage began, or during it, fails again until the outage is over. So its failure is
    the candidate's only if it fails once more in an attempt that was sent after other rows' attempts, sent after the
    first failure, had succeeded at the same endpoint; and if few rows fail: this one alone, or at most one in four.
    """

    def __init__(self, evidence: HostEvidence, rows: Sequence[str], earlier: Sequence[FailedTry] = ()) -> None:
        self._evidence = evidence
        self._examples = [_Example(row) for row in rows]
        self._endpoint, self._sent = "", float("-inf")
        self._cancelled = False
        for at, tries in itertools.groupby(sorted(earlier, key=lambda each: each.at), key=lambda each: each.at):
            made = list(tries)
            if at < len(rows) and made[-1].others_answered:  # else it may have been an outage
                self._examples[at] = _Example(rows[at], float("-inf"), len(made), recorded=True)

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
            FailedTry(at, example.row, failure.host, failure.reason, self._few_fail(example, self._succeeded(example)))
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
            if example.failures < FAILURES - 1 or example.recorded:
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
        if self._few_fail(example, self._succeeded(example)):
            return True
        passes = self._evidence.recovered(self._endpoint, example.row, example.since)
        return passes and example.failures < MOST_FAILURES

    def _succeeded(self, example: _Example) -> int:
        return self._evidence.succeeded(self._endpoint, example.row, example.since)

    def _few_fail(self, example: _Example, succeeded: int) -> bool:
        failing = len(self._evidence.failing(self._endpoint, example.row))
        return example.recorded or succeeded >= (SUCCESSES * (failing + 1) if failing else 1)


async def evaluated_alone(
    client: "RpcClient",
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
        limit_s, call_id = client.evaluation_timeout_s(len(batch)), client.new_call_id()
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
