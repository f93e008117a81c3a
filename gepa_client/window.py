"""A sliding window of evaluations over everything a `batch_evaluate` asks for, within the server's limits."""

import asyncio
import functools
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gepa_client.deadlines import evaluation_s
from gepa_client.retry import NoVerdict, Retries
from gepa_client.rpc import RpcClient
from protocol import Candidate, Limits

Results = list[dict[str, Any]]
"""The results of an item as received, one for each of its examples, in their order."""

NO_VERDICT = ("infra_error", "cancelled")


@dataclass(frozen=True)
class Item:
    """One candidate on one batch; `examples` as they go over the wire. `trace`: trajectories are wanted."""

    candidate: Candidate
    examples: Sequence[dict[str, Any]]
    trace: bool


@dataclass(frozen=True)
class ExampleDone:
    """An example has its result. `in_flight`: examples still being waited for; `attempts`: calls it took, at least 1.

    `seconds`, `score`, `status`, `usage`: as the server gave them.
    """

    id: str
    status: str
    score: float | None
    seconds: float
    attempts: int
    in_flight: int
    usage: dict[str, Any] | None


@dataclass
class Tally:
    """What evaluations took so far: examples with a result, calls, and what results say they cost.

    Cost and tokens sum what was reported; `unreported` counts results that came without a `cost_usd`.
    """

    examples: int = 0
    calls: int = 0
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    unreported: int = 0

    def add(self, results: Iterable[dict[str, Any]]) -> None:
        """Count the cost of an attempt's results, whatever became of them."""
        for result in results:
            usage = result.get("usage") or {}
            cost = usage.get("cost_usd")
            self.cost_usd += cost or 0.0
            self.unreported += cost is None
            self.input_tokens += usage.get("input_tokens") or 0
            self.output_tokens += usage.get("output_tokens") or 0


@dataclass
class Window:
    """Evaluates items on one server, as many examples at once as it bears, in whatever order they finish.

    Single examples slide through the window; only where the server wants `whole_batches` is an item one call (in
    slices of `max_batch_size` where it must be), the items in their order.
    """

    client: RpcClient
    limits: Limits
    retries: Retries
    on_example: Callable[[ExampleDone], None] | None = None
    in_flight: int = field(default=0, init=False)

    async def evaluate(self, items: Sequence[Item], tally: Tally) -> list[Results]:
        """Results for every item, in the items' and examples' order.

        Raises:
            Interrupted: an example got no result; nothing is left running.
            RpcError, ClientError: the call itself is wrong, or the program cannot run.
        """
        traced_by_ref = self.client.offers("refs")
        evaluated: list[Results] = [[{}] * len(item.examples) for item in items]
        jobs: list[Callable[[], Awaitable[None]]] = []
        for item, into in zip(items, evaluated, strict=True):
            group = uuid.uuid4().hex if item.trace and traced_by_ref else None
            if self.limits.whole_batches:
                jobs.append(functools.partial(self._whole, item, group, into, tally))
            else:
                single = functools.partial(self._single, item, group, into, tally)
                jobs += [functools.partial(single, at) for at in range(len(item.examples))]
        await run_window(self.limits.max_concurrency, jobs)
        return evaluated

    async def _single(self, item: Item, group: str | None, into: Results, tally: Tally, at: int) -> None:
        answer = await self._call(item, item.examples[at : at + 1], group, tally)
        into[at] = answer["results"][0]

    async def _whole(self, item: Item, group: str | None, into: Results, tally: Tally) -> None:
        for start in range(0, len(item.examples), self.limits.max_batch_size):
            batch = item.examples[start : start + self.limits.max_batch_size]
            answer = await self._call(item, batch, group, tally)
            into[start : start + len(batch)] = answer["results"]

    async def _call(
        self, item: Item, batch: Sequence[dict[str, Any]], group: str | None, tally: Tally
    ) -> dict[str, Any]:
        """Evaluate these examples in one call until every one has a verdict."""
        number = 0

        async def attempt(call_id: str, count: int) -> dict[str, Any]:
            nonlocal number
            number = count
            tally.calls += 1
            answer = await self.client.evaluate(
                item.candidate,
                batch,
                capture_traces=item.trace,
                call_id=call_id if self.client.offers("idempotency") else None,
                group=group,
                timeout_s=evaluation_s(self.limits, len(batch)),
            )
            tally.add(answer["results"])
            for example, result in zip(batch, answer["results"], strict=True):
                if result["status"] in NO_VERDICT:
                    raise NoVerdict(_verdictless(example, result))
            return answer

        self.in_flight += len(batch)
        try:
            answer = await self.retries.run(_named(batch), attempt)
        finally:
            self.in_flight -= len(batch)
        tally.examples += len(batch)
        for example, result in zip(batch, answer["results"], strict=True):
            self._tell(example, result, number)
        return answer

    def _tell(self, example: dict[str, Any], result: dict[str, Any], attempts: int) -> None:
        if self.on_example is not None:
            self.on_example(
                ExampleDone(
                    id=example["id"],
                    status=result["status"],
                    score=result["score"],
                    seconds=result["seconds"],
                    attempts=attempts,
                    in_flight=self.in_flight,
                    usage=result.get("usage"),
                )
            )


async def run_window(width: int, jobs: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run the jobs, started in order, at most `width` at once; the first failure stops the others and is raised."""
    waiting = iter(jobs)

    async def work() -> None:
        for job in waiting:
            await job()

    workers = [asyncio.create_task(work()) for _ in range(min(width, len(jobs)))]
    if not workers:
        return
    try:
        await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        for worker in workers:
            if worker.done():
                worker.result()
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def _named(batch: Sequence[dict[str, Any]]) -> str:
    first = f"example {batch[0]['id']!r}"
    return first if len(batch) == 1 else f"the batch of {len(batch)} that begins with {first}"


def _verdictless(example: dict[str, Any], result: dict[str, Any]) -> str:
    error = result.get("error") or {}
    told = f": {error.get('type')}: {error.get('message')}" if error else ""
    return f"example {example['id']!r} is {result['status']}{told}"
