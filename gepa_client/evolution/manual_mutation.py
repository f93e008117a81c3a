"""One mutation by hand: made while the rows run with the candidate as it is, then the same rows with the new one."""

import asyncio
import functools
import time
import uuid
from collections.abc import Callable, Sequence

from gepa_client.errors import ClientError
from gepa_client.evolution.branches import by_hand_name
from gepa_client.evolution.mutation_request import Result, Step, Tried
from gepa_client.gepa.rows import AnyRow
from gepa_client.transport.deadlines import evaluation_s
from gepa_client.transport.error_format import summary
from gepa_client.transport.rpc import RpcClient
from gepa_client.transport.task_group import Job, run_all
from protocol import ApplyMutationResult, Candidate, JsonValue, Limits, Progress
from protocol.errors import RpcError

Told = Callable[[str], None]
"""Called with what is going on, in a few words; some of them are the server's."""

SPARE_S = 60.0
"""By how much the call's own deadline is later than the mutation's, which so always comes first."""

ROWS_TOLD_S = 1.0
"""How often it is told how many rows have run."""


async def make_step(
    client: RpcClient,
    candidate: Candidate,
    mutation: dict[str, JsonValue],
    rows: Sequence[AnyRow],
    *,
    timeout_s: float,
    told: Told,
    on_made: Callable[[ApplyMutationResult], None],
) -> Step:
    """Have `candidate` mutated by a server that was discovered, and try the rows on both sides of it.

    `timeout_s`: of the mutation. `on_made` is called once there is something that this cannot take back. Cancelling
    this before cancels the mutation on the server, where it can.

    Raises:
        TimeoutError: it was not made in `timeout_s`.
        RpcError, ClientError: the mutation was not made; `MutationRejected` says at which stage it failed.
    """
    before = asyncio.create_task(_results(client, candidate, rows, "before", told))
    try:
        async with asyncio.timeout(timeout_s):  # which cancels; the client's own deadline would let the server go on
            made = await client.apply_mutation(
                {"candidate": candidate, "mutation": mutation, "name": {"run": by_hand_name(), "number": 0}},
                call_id=uuid.uuid4().hex if client.offers("idempotency") else None,
                timeout_s=timeout_s + SPARE_S,
                told=functools.partial(_tell, told),
            )
        on_made(made)
        first = await before
    finally:
        before.cancel()
        await asyncio.gather(before, return_exceptions=True)
    then = await _results(client, made.candidate, rows, "after", told)
    return Step(made, [Tried(*each) for each in zip(rows, first, then, strict=True)])


def _tell(told: Told, progress: Progress) -> None:
    if progress.message:
        told(progress.message)


async def _results(
    client: RpcClient, candidate: Candidate, rows: Sequence[AnyRow], when: str, told: Told
) -> list[Result]:
    """One result per row, whatever becomes of the calls: a program that does not start is a reason to change it."""
    limits = _limits(client)
    results: list[Result] = [{}] * len(rows)
    done, told_at = 0, time.monotonic()

    async def evaluate(start: int, batch: Sequence[AnyRow], _job: Job) -> None:
        nonlocal done, told_at
        try:
            answer = await client.evaluate(
                candidate,
                [row.wire for row in batch],
                call_id=uuid.uuid4().hex if client.offers("idempotency") else None,
                timeout_s=evaluation_s(limits, len(batch)),
            )
            results[start : start + len(batch)] = answer["results"]
        except (ClientError, RpcError) as error:
            lost = {"type": type(error).__name__, "message": summary(error)}
            failed = {"status": "infra_error", "score": None, "output": None, "seconds": 0.0, "error": lost}
            results[start : start + len(batch)] = [failed] * len(batch)
        done += len(batch)
        if done == len(rows) or time.monotonic() - told_at >= ROWS_TOLD_S:
            told_at = time.monotonic()
            told(f"{when} the mutation: {done} of {len(rows)} rows run")

    width = len(rows) if limits.whole_batches else 1
    batches = [(at, rows[at : at + width]) for at in range(0, len(rows), width or 1)]
    await run_all([Job(functools.partial(evaluate, *batch)) for batch in batches], limits.max_concurrency)
    return results


def _limits(client: RpcClient) -> Limits:
    if client.discovery is None:
        raise LookupError("discover the server first")
    return client.discovery.limits
