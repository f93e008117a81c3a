"""One mutation by hand: made while the rows run with the old candidate; then the same rows run with the new one."""

import asyncio
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gepa_client.errors import ClientError, summary
from gepa_client.evolution.candidate_names import manual_run_name
from gepa_client.gepa.rows import AnyRow
from gepa_client.transport.event_loop import GroupTask, run_group
from gepa_client.transport.responses import validated
from protocol import ApplyMutationResult, Candidate, JsonValue, Progress
from protocol.errors import RpcError

if TYPE_CHECKING:
    from gepa_client.transport.rpc_client import RpcClient  # heavy

Report = Callable[[str], None]
"""Called with progress messages; some come from the server."""

GRACE_S = 60.0
"""Seconds by which the call's own deadline is later than the mutation's."""

ROWS_REPORT_S = 1.0
"""Seconds between two reports of how many rows have run."""

Result = dict[str, Any]
"""An `ExampleResult` as JSON; a call that failed as a whole is an `infra_error`."""


@dataclass(frozen=True)
class RowComparison:
    """A row with its results before and after the mutation."""

    row: AnyRow
    before: Result
    after: Result


@dataclass(frozen=True)
class ManualMutation:
    """A mutation that was made. `tried`: empty if no rows were given."""

    made: ApplyMutationResult
    tried: list[RowComparison]

    def mean(self, when: Literal["before", "after"]) -> float | None:
        """Return the mean score `before` or `after`; None if a row has none. A failure of the program scores 0."""
        scores = [score_of(tried.before if when == "before" else tried.after) for tried in self.tried]
        known = [score for score in scores if score is not None]
        return statistics.fmean(known) if scores and len(known) == len(scores) else None


def score_of(result: Result) -> float | None:
    """Return the score of a result: 0 if the program failed or took too long, None if it is unknown."""
    if result["status"] in ("program_error", "timeout"):
        return 0.0
    score: float | None = result["score"]
    return score


async def mutate_once(
    client: "RpcClient",
    candidate: Candidate,
    mutation: dict[str, JsonValue],
    rows: Sequence[AnyRow],
    *,
    timeout_s: float,
    report: Report,
    on_made: Callable[[ApplyMutationResult], None],
) -> ManualMutation:
    """Have a discovered server mutate `candidate`, and run the rows before and after.

    `timeout_s`: of the mutation. `on_made`: called once the mutation exists and cannot be undone. Cancelling this
    before then cancels the mutation on the server, if it can.

    Raises:
        TimeoutError: it took longer than `timeout_s`.
        RpcError, ClientError: the mutation was not made; `MutationRejected` names the stage that failed.
    """
    before = asyncio.create_task(_results(client, candidate, rows, "before", report))
    try:
        async with asyncio.timeout(timeout_s):  # unlike the client's deadline, this cancels the call
            answer = await client.call(
                "apply_mutation",
                {"candidate": candidate, "mutation": mutation, "name": {"run": manual_run_name(), "number": 0}},
                call_id=client.new_call_id(),
                timeout_s=timeout_s + GRACE_S,
                on_progress=functools.partial(_pass_on, report),
            )
        made = validated(ApplyMutationResult, answer)
        on_made(made)
        first = await before
    finally:
        before.cancel()
        await asyncio.gather(before, return_exceptions=True)
    then = await _results(client, made.candidate, rows, "after", report)
    return ManualMutation(made, [RowComparison(*each) for each in zip(rows, first, then, strict=True)])


def _pass_on(report: Report, progress: Progress) -> None:
    if progress.message:
        report(progress.message)


async def _results(
    client: "RpcClient", candidate: Candidate, rows: Sequence[AnyRow], when: str, report: Report
) -> list[Result]:
    """Return one result per row, even if the calls fail: a program that does not start is a reason to change it."""
    from gepa_client.fleet.example_retries import HostEvidence, evaluated_alone  # heavy

    if client.discovery is None:
        raise LookupError("discover the server first")
    limits = client.discovery.limits
    results: list[Result] = [{}] * len(rows)
    done, reported = 0, time.monotonic()
    evidence = HostEvidence()

    async def evaluate(start: int, batch: Sequence[AnyRow], _task: GroupTask) -> None:
        nonlocal done, reported
        wire = [row.wire for row in batch]
        try:
            found, _ = await evaluated_alone(client, evidence, candidate, wire, traced=False)
            results[start : start + len(batch)] = found
        except (ClientError, RpcError) as error:
            lost = {"type": type(error).__name__, "message": summary(error)}
            failed = {"status": "infra_error", "score": None, "output": None, "seconds": 0.0, "error": lost}
            results[start : start + len(batch)] = [failed] * len(batch)
        done += len(batch)
        if done == len(rows) or time.monotonic() - reported >= ROWS_REPORT_S:
            reported = time.monotonic()
            report(f"{when} the mutation: {done} of {len(rows)} rows run")

    width = len(rows) if limits.whole_batches else 1
    batches = [(at, rows[at : at + width]) for at in range(0, len(rows), width or 1)]
    await run_group([GroupTask(functools.partial(evaluate, *batch)) for batch in batches], limits.max_concurrency)
    return results
