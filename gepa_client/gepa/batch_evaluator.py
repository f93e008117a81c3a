"""All examples of an evaluation at once, one call each, as far as the fleet has room; what is recorded is not run."""

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evolverpc_common.model_prices import PriceTable
from gepa_client.errors import AnswerTooLarge, BadResponse, ClientError
from gepa_client.fleet import Answered, Fleet, NoVerdict, Pin
from gepa_client.gepa.model_prices import priced
from gepa_client.gepa.rows import AnyRow
from gepa_client.journal.entries import EVALUATE, RETRACE, ROLLOUT, SCORE
from gepa_client.journal.journal import Journal, Slot, first_failure
from gepa_client.journal.recorded_output import held
from gepa_client.journal.requests import digest_of, evaluate_request
from gepa_client.transport.deadlines import evaluation_s
from gepa_client.transport.response_limits import excess_of, oversized
from gepa_client.transport.rpc import RpcClient
from gepa_client.transport.task_group import Job, run_all
from protocol import Candidate, DiscoverResult
from protocol.errors import LimitExceeded, RpcError

Results = list[dict[str, Any]]
"""The results of an item as received, one for each of its examples, in their order."""

NO_VERDICT = ("infra_error", "cancelled")


@dataclass(frozen=True)
class Item:
    """One candidate on one batch. `trace`: trajectories are wanted.

    `parts` (capability `batch_evaluate`): the candidates of consecutive rows, each with how many, in place of
    `candidate`, which is the first of them; such an item is one call.
    """

    candidate: Candidate
    rows: Sequence[AnyRow]
    trace: bool
    parts: Sequence[tuple[Candidate, int]] = ()


@dataclass(frozen=True)
class ExampleDone:
    """An example has its result. `in_flight`: examples still being waited for.

    `seconds`, `score`, `status`, `usage`, `error`: as the server gave them.
    """

    id: str
    status: str
    score: float | None
    seconds: float
    in_flight: int
    usage: dict[str, Any] | None
    error: dict[str, Any] | None


@dataclass
class Window:
    """Evaluates items on a fleet, in whatever order they finish.

    Single examples slide through; only where the program wants `whole_batches` is an item one call (in slices of
    `max_batch_size` where it must be). `scorers` score what programs answer as `rollout`.
    """

    fleet: Fleet
    discovery: DiscoverResult
    journal: Journal
    scorers: Fleet | None = None
    on_example: Callable[[ExampleDone], None] | None = None
    prices: PriceTable = field(default_factory=lambda: PriceTable({}))

    async def evaluate(self, items: Sequence[Item]) -> list[Results]:
        """Results for every item, in the items' and examples' order; all of them are recorded.

        After a failure nothing new is begun, and what is in flight comes to its end and is recorded.

        Raises:
            Interrupted: an example got no result, or the run must stop.
            RpcError, ClientError: the call itself is wrong, or the program cannot run.
        """
        slots = self.journal.ask([request for item in items for request in _requests(item)])
        if (failure := first_failure(slots)) is not None:
            raise failure
        evaluated: list[Results] = []
        batches: list[tuple[_Batch, Results]] = []
        position = 0
        for item in items:
            own = slots[position : position + len(item.rows)]
            position += len(item.rows)
            into: Results = [held(self.journal, slot, slot.answer) if slot.recorded else {} for slot in own]
            evaluated.append(into)
            batches += [(batch, into) for batch in self._batches(item, own, into)]
        if batches:
            with self.journal.live(slots):
                await self._run(batches)
        return evaluated

    async def evaluate_together(self, items: Sequence[Item]) -> list[Results]:
        """`evaluate` with several items in one call, as many as `max_batch_size` has room for."""
        joined = _joined(items, self.discovery.limits.max_batch_size)
        results = iter([result for each in await self.evaluate(joined) for result in each])
        return [[next(results) for _ in item.rows] for item in items]

    async def retrace(self, item: Item, slot: Slot) -> Results:
        """An item once more for its traces, which were lost; it counts for `slot`, and only as an attempt.

        Raises: as `evaluate`.
        """
        name = f"{self.journal.name(slot.number)}/retrace-{slot.attempts}"  # another group than any before
        batches = self._sliced(item, name, [slot] * len(item.rows), Pin())
        fresh: Results = [{}] * len(item.rows)

        async def again(batch: _Batch, job: Job) -> None:
            for position, result in zip(batch.at, await self._call(batch, slot, RETRACE, job), strict=True):
                fresh[position] = result
            self.journal.spend.done(RETRACE, len(batch.at))

        await run_all([Job(functools.partial(again, batch)) for batch in batches])
        return fresh

    # --- what is one call --------------------------------------------------------------------------------------------

    def _batches(self, item: Item, slots: Sequence[Slot], into: Results) -> "list[_Batch]":
        """The calls for those of an item's examples that are not recorded."""
        if all(slot.recorded for slot in slots):
            return []
        name = self.journal.name(slots[0].number)
        known = [instance for result in into if (instance := instance_of(result)) is not None]
        return self._sliced(item, name, slots, Pin(known[0] if known else None))

    def _sliced(self, item: Item, name: str, slots: Sequence[Slot], pin: Pin) -> "list[_Batch]":
        limits = self.discovery.limits
        size = limits.max_batch_size if limits.whole_batches or item.parts else 1
        group, traced_pin = (name, pin) if item.trace else (None, None)
        ranges = [range(start, min(start + size, len(item.rows))) for start in range(0, len(item.rows), size)]
        return [
            _Batch(item, list(at), [slots[position] for position in at], group, traced_pin)
            for at in ranges
            if not all(slots[position].recorded for position in at)
        ]

    # --- doing it ----------------------------------------------------------------------------------------------------

    async def _run(self, batches: "Sequence[tuple[_Batch, Results]]") -> None:
        failed: list[tuple[int, Slot, Exception]] = []

        async def evaluate(batch: _Batch, into: Results, job: Job) -> None:
            fresh = [(at, slot) for at, slot in enumerate(batch.slots) if not slot.recorded]
            first = fresh[0][1]
            try:
                results = await self._results(batch, first, job)
            except (RpcError, ClientError) as error:
                failed.append((first.number, first, error))
                raise
            # what is recorded of a batch that must run as a whole stays what GEPA sees
            seen = self.journal.record(*((slot, results[at]) for at, slot in fresh))
            for (at, slot), result in zip(fresh, seen, strict=True):
                into[batch.at[at]] = held(self.journal, slot, result)
                self._tell(batch.item.rows[batch.at[at]], result)
            self.journal.spend.done(EVALUATE, len(fresh))

        try:
            await run_all([Job(functools.partial(evaluate, batch, into)) for batch, into in batches])
        except (RpcError, ClientError):
            _, slot, first = min(failed, key=lambda failure: failure[0])
            self.journal.fail(slot, first)
            raise first from None
        finally:
            await self.journal.settled()

    async def _results(self, batch: "_Batch", slot: Slot, job: Job) -> Results:
        """The verdicts on a batch; what has run and only waits for its score does not run again."""
        rows = [batch.item.rows[position] for position in batch.at]
        waiting = [self.journal.rollout(each) for each in batch.slots]
        if all(result is not None for result in waiting):
            results: Results = waiting
        else:
            results = await self._call(batch, slot, EVALUATE, job)
            for at, (each, result) in enumerate(zip(batch.slots, results, strict=True)):
                if result["status"] == ROLLOUT and waiting[at] is None:
                    results[at] = self.journal.keep_rollout(each, result)
        if any(result["status"] == ROLLOUT for result in results):
            results = await self._scored(rows, results, slot)
        return results

    async def _call(self, batch: "_Batch", slot: Slot, kind: str, job: Job) -> Results:
        """Evaluate in one call, whose attempts count for `slot`, until every example has a verdict."""
        rows = [batch.item.rows[position] for position in batch.at]

        async def send(client: RpcClient, call_id: str | None) -> Answered[Results]:
            job.begun = True
            began = time.monotonic()
            try:
                answer = await client.evaluate(
                    batch.item.candidate,
                    [row.wire for row in rows],
                    capture_traces=batch.item.trace,
                    items=_wire_items(batch),
                    call_id=call_id,
                    group=batch.group if client.offers("refs") else None,
                    timeout_s=evaluation_s(_limits(client), len(rows)),
                )
            except (AnswerTooLarge, LimitExceeded) as error:
                if (excess := excess_of(error)) is None:
                    raise
                seconds = time.monotonic() - began
                if len(rows) > 1:
                    return Answered([], "error", seconds, examples=0)
                return answered(rows, [oversized(excess, seconds)], self.prices)
            return answered(rows, answer["results"], self.prices)

        needs = "batch_evaluate" if batch.item.parts else None
        attempts = self.journal.attempts(slot, kind)
        results = await self.fleet.call(_named(rows), send, attempts, pin=batch.pin, needs=needs)
        return results or await self._one_by_one(batch, slot, kind, job)

    async def _one_by_one(self, batch: "_Batch", slot: Slot, kind: str, job: Job) -> Results:
        """Evaluate each example of a batch by itself, as their answer together is too large to be read."""
        results: Results = []
        for position, own in zip(batch.at, batch.slots, strict=True):
            item = Item(_candidate_at(batch.item, position), [batch.item.rows[position]], batch.item.trace)
            single = replace(batch, item=item, at=[0])
            results += await self._call(single, slot if own.recorded else own, kind, job)
        return results

    async def _scored(self, rows: Sequence[AnyRow], results: Results, slot: Slot) -> Results:
        """The same results with the scores of another endpoint."""
        scorers = self.scorers
        if scorers is None:
            raise BadResponse(
                "the program has no score function: its results are rollouts that another endpoint must score; "
                "give --score-with URL"
            )
        at = [position for position, result in enumerate(results) if result["status"] == ROLLOUT]

        async def send(client: RpcClient, call_id: str | None) -> Answered[Results]:
            asked, outputs = [rows[position] for position in at], [_for_scoring(results[position]) for position in at]
            answer = await client.score(
                {"batch": [row.wire for row in asked], "results": outputs},
                call_id=call_id,
                timeout_s=evaluation_s(_limits(client), len(at)),
            )
            return answered(asked, answer["results"], self.prices)

        scored = await scorers.call(
            f"the score of {_named(rows)}", send, self.journal.attempts(slot, SCORE), needs="scoring"
        )
        merged = list(results)
        for position, score in zip(at, scored, strict=True):
            if score["status"] == ROLLOUT:
                raise BadResponse("the endpoint that scores answered `rollout` again, and no score")
            merged[position] = _with_score(results[position], score)
        return merged

    def _tell(self, row: AnyRow, result: dict[str, Any]) -> None:
        if self.on_example is not None:
            self.on_example(
                ExampleDone(
                    id=row.id,
                    status=result["status"],
                    score=result["score"],
                    seconds=result["seconds"],
                    in_flight=self.fleet.in_flight,
                    usage=result.get("usage"),
                    error=result.get("error"),
                )
            )


@dataclass(frozen=True)
class _Batch:
    """Examples of an item that are one call: their positions in it, and their slots."""

    item: Item
    at: list[int]
    slots: list[Slot]
    group: str | None
    pin: Pin | None


def answered(rows: Sequence[AnyRow], results: Results, prices: PriceTable) -> Answered[Results]:
    """Results with what they cost, priced here if the server did not; raises `NoVerdict` if an example has none."""
    for result in results:
        if usage := result.get("usage"):
            result["usage"] = priced(usage, prices)
    usage = _usage(results)
    unpriced = sum(map(_is_unpriced, results))
    seconds = sum(result["seconds"] for result in results)
    for row, result in zip(rows, results, strict=True):
        if result["status"] in NO_VERDICT:
            raise NoVerdict(
                _verdictless(row, result),
                outcome=result["status"],
                seconds=seconds,
                usage=usage,
                examples=len(results),
                unpriced=unpriced,
            )
    outcome = next((result["status"] for result in results if result["status"] != "ok"), "ok")
    return Answered(results, outcome, seconds, usage, len(results), unpriced)


def instance_of(result: dict[str, Any]) -> str | None:
    """The instance that holds the trajectory of a result, as its reference names it."""
    ref = result.get("trajectory_ref")
    return ref.partition("/")[0] if isinstance(ref, str) else None


def _candidate_at(item: Item, position: int) -> Candidate:
    end = 0
    for candidate, size in item.parts:
        end += size
        if position < end:
            return candidate
    return item.candidate


def _requests(item: Item) -> Iterable[Any]:
    rows = iter(item.rows)
    for candidate, size in item.parts or [(item.candidate, len(item.rows))]:
        digest = digest_of(candidate)
        for row in itertools.islice(rows, size):
            yield evaluate_request(digest, row.digest, row.id, item.trace)


def _joined(items: Sequence[Item], most: int) -> list[Item]:
    """The items one after another, in as few of at most `most` rows as keeps each of them whole."""
    joined: list[Item] = []
    for item in items:
        part = (item.candidate, len(item.rows))
        last = joined[-1] if joined else None
        if last is not None and len(last.rows) + len(item.rows) <= most:
            joined[-1] = replace(last, rows=[*last.rows, *item.rows], parts=[*last.parts, part])
        else:
            joined.append(replace(item, parts=[part]))
    return joined


def _wire_items(batch: "_Batch") -> list[dict[str, Any]] | None:
    """`EvaluateParams.items`; an item of more rows than fit in one call has a single part, and is sliced."""
    parts = batch.item.parts if len(batch.at) == len(batch.item.rows) else [(batch.item.candidate, len(batch.at))]
    return [{"candidate": candidate, "size": size} for candidate, size in parts] if batch.item.parts else None


def _limits(client: RpcClient) -> Any:
    if client.discovery is None:
        raise AssertionError("endpoints are discovered before they are called")
    return client.discovery.limits


def _usage(results: Results) -> dict[str, Any] | None:
    """The sum of what the results say they cost; None where none says anything."""
    said = [result["usage"] for result in results if result.get("usage")]
    if not said:
        return None
    keys = {key: None for usage in said for key, value in usage.items() if isinstance(value, int | float)}
    return {key: sum(_number(usage.get(key)) for usage in said) for key in keys}


def _number(value: Any) -> int | float:
    return value if isinstance(value, int | float) else 0


def _is_unpriced(result: dict[str, Any]) -> bool:
    """Whether it may have cost something that is not known.

    An attempt that the infrastructure refused (a 429, a lost connection) and that reports no usage cost nothing.
    """
    usage = result.get("usage") or {}
    return usage.get("cost_usd") is None and not (result["status"] in NO_VERDICT and not usage)


def _for_scoring(result: dict[str, Any]) -> dict[str, Any]:
    """A rollout without its trajectory: what it did on the way is no business of the score."""
    return {key: value for key, value in result.items() if key not in ("trajectory", "trajectory_ref", "usage")}


def _with_score(rollout: dict[str, Any], scored: dict[str, Any]) -> dict[str, Any]:
    verdict = {
        key: scored[key]
        for key in ("status", "score", "feedback", "objective_scores", "error")
        if scored.get(key) is not None or key in ("status", "score")
    }
    return {**rollout, **verdict, "seconds": rollout["seconds"] + scored["seconds"]}


def _named(rows: Sequence[AnyRow]) -> str:
    first = f"example {rows[0].id!r}"
    return first if len(rows) == 1 else f"the batch of {len(rows)} that begins with {first}"


def _verdictless(row: AnyRow, result: dict[str, Any]) -> str:
    error = result.get("error") or {}
    told = f": {error.get('type')}: {error.get('message')}" if error else ""
    return f"example {row.id!r} is {result['status']}{told}"
