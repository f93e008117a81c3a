"""Evaluate all examples of a request at once, one call each, as far as the fleet has room; skip what is recorded."""

import functools
import itertools
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evolverpc_common.model_prices import PriceTable
from gepa_client.errors import NO_SCORE, AnswerTooLarge, BadResponse, ClientError
from gepa_client.fleet import Fleet, Pin
from gepa_client.fleet.example_retries import PROBED_FOR, SUCCESSES
from gepa_client.gepa.evaluation_results import Results, as_rollout, instance_of, reply_with, with_score
from gepa_client.gepa.rows import EXACT_VALUES, AnyRow, evaluation_call, named
from gepa_client.journal.entries import EVALUATE, PROBE, RETRACE, ROLLOUT, SCORE
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import RecordedRequest, RequestKey, complete, digest_of, evaluate_key, first_failure
from gepa_client.transport.calls import AttemptLog, Call, Reply
from gepa_client.transport.event_loop import GroupTask, run_group
from gepa_client.transport.responses import example_results, excess_of, oversized
from protocol import Candidate, DiscoverResult, ScoreResult
from protocol.errors import LimitExceeded, RpcError

PROBES_KEPT = (SUCCESSES + 1) * PROBED_FOR
"""Rows with a score, the latest ones, which can be run again to learn whether there is an outage."""


@dataclass(frozen=True)
class EvaluationItem:
    """One candidate on one batch. `trace`: trajectories are wanted. `instance`: a server that keeps others beside them.

    `parts` (capability `batch_evaluate`): the candidates of consecutive rows, each with its number of rows, in place of
    `candidate`, which is the first of them; such an item is one call.
    """

    candidate: Candidate
    rows: Sequence[AnyRow]
    trace: bool
    parts: Sequence[tuple[Candidate, int]] = ()
    instance: str | None = None


@dataclass(frozen=True)
class ExampleDone:
    """An example has its result. `seconds`, `score`, `status`, `error`, `feedback`: as the server gave them."""

    id: str
    candidate: Candidate
    status: str
    score: float | None
    seconds: float
    error: dict[str, Any] | None
    feedback: str | None = None


@dataclass(frozen=True)
class _Batch:
    """Examples of an item that are one call: their positions in it, and their requests."""

    item: EvaluationItem
    at: list[int]
    requests: list[RecordedRequest]
    group: str | None
    pin: Pin | None

    @property
    def rows(self) -> list[AnyRow]:
        return [self.item.rows[position] for position in self.at]


@dataclass
class BatchEvaluator:
    """Evaluates items on a fleet, in the order in which calls finish.

    Each example is a call of its own; only if the program wants `whole_batches` is an item one call (in slices of
    `max_batch_size` if necessary). `scorers` score what programs answer as `rollout`.
    """

    fleet: Fleet
    discovery: DiscoverResult
    journal: Journal
    scorers: Fleet | None = None
    on_example: Callable[[ExampleDone], None] | None = None
    prices: PriceTable = field(default_factory=lambda: PriceTable({}))
    _scored_examples: dict[str, tuple[Candidate, AnyRow, dict[str, Any]]] = field(default_factory=dict, init=False)

    async def evaluate(self, items: Sequence[EvaluationItem]) -> list[Results]:
        """Return results for every item, in the items' and examples' order; all of them are recorded.

        After a failure no further call starts, and calls in flight end and are recorded.

        Raises:
            Interrupted: an example got no result, or the run must stop.
            RpcError, ClientError: the call itself is wrong, or the program cannot run.
        """
        return await self.request(items)()

    def request(self, items: Sequence[EvaluationItem]) -> Callable[[], Awaitable[list[Results]]]:
        """Return the function that evaluates the items, as `evaluate` does; their requests are numbered now.

        Several of these may run at once.
        """
        requests = self.journal.ask([key for item in items for key in _keys(item)])
        return functools.partial(self._evaluate, items, requests)

    async def _evaluate(self, items: Sequence[EvaluationItem], requests: list[RecordedRequest]) -> list[Results]:
        if (failure := first_failure(requests)) is not None:
            raise failure
        evaluated: list[Results] = []
        batches: list[tuple[_Batch, Results]] = []
        position = 0
        for item in items:
            own = requests[position : position + len(item.rows)]
            position += len(item.rows)
            into: Results = [
                self.journal.shortened(request.number, request.size, dict(request.answer)) if request.recorded else {}
                for request in own
            ]
            for at, request in enumerate(own):
                if request.recorded:
                    self._keep_for_probes(item, at, into[at])
            evaluated.append(into)
            batches += [(batch, into) for batch in self._batches(item, own, into)]
        if batches:
            with self.journal.executing(requests):
                await self._run(batches)
        return evaluated

    async def evaluate_together(self, items: Sequence[EvaluationItem]) -> list[Results]:
        """Do the same with several items in one call, as many as `max_batch_size` allows."""
        joined = _joined(items, self._max_batch_size)
        results = iter([result for each in await self.evaluate(joined) for result in each])
        return [[next(results) for _ in item.rows] for item in items]

    async def retrace(self, item: EvaluationItem, request: RecordedRequest) -> Results:
        """Evaluate an item once more for its lost traces; it counts for `request`, and only as an attempt.

        Raises: as `evaluate`.
        """
        name = f"{self.journal.name(request.number)}/retrace-{request.attempts}"  # another group than any before
        batches = self._sliced(item, name, [request] * len(item.rows), Pin())
        fresh: Results = [{}] * len(item.rows)

        async def again(batch: _Batch, task: GroupTask) -> None:
            for position, result in zip(batch.at, await self._call(batch, request, RETRACE, task), strict=True):
                fresh[position] = result
            self.journal.spending.add_examples(RETRACE, len(batch.at))

        await run_group([GroupTask(functools.partial(again, batch)) for batch in batches])
        return fresh

    @property
    def _max_batch_size(self) -> int:
        """Examples of one call: as many as the server takes, and as may be in flight."""
        size = self.discovery.limits.max_batch_size
        return size if (most := self.fleet.concurrency.most) is None else min(size, most)

    @property
    def _scorers_read(self) -> bool:
        """Whether the endpoints that score read trajectories."""
        return self.scorers is not None and self.scorers.offers("score_trajectories")

    # --- slicing into calls ------------------------------------------------------------------------------------------

    def _batches(self, item: EvaluationItem, requests: Sequence[RecordedRequest], into: Results) -> list[_Batch]:
        """Return the calls for those of an item's examples that are not recorded."""
        if all(request.recorded for request in requests):
            return []
        name = self.journal.name(requests[0].number)
        known = [instance for result in into if (instance := instance_of(result)) is not None]
        return self._sliced(item, name, requests, Pin(known[0] if known else item.instance))

    def _sliced(self, item: EvaluationItem, name: str, requests: Sequence[RecordedRequest], pin: Pin) -> list[_Batch]:
        limits = self.discovery.limits
        size = self._max_batch_size if limits.whole_batches or item.parts else 1
        group, traced_pin = (name, pin) if item.trace else (None, None)
        ranges = [range(start, min(start + size, len(item.rows))) for start in range(0, len(item.rows), size)]
        return [
            _Batch(item, list(at), [requests[position] for position in at], group, traced_pin)
            for at in ranges
            if not all(requests[position].recorded for position in at)
        ]

    # --- execution ---------------------------------------------------------------------------------------------------

    async def _run(self, batches: Sequence[tuple[_Batch, Results]]) -> None:
        failed: list[tuple[int, RecordedRequest, Exception]] = []

        async def evaluate(batch: _Batch, into: Results, task: GroupTask) -> None:
            fresh = [(at, request) for at, request in enumerate(batch.requests) if not request.recorded]
            first = fresh[0][1]
            try:
                results = await self._results(batch, first, task)
            except (RpcError, ClientError) as error:
                failed.append((first.number, first, error))
                raise
            # recorded results of a batch that must run as a whole stay what GEPA sees
            recorded: list[Any] = self.journal.record(*((request, results[at]) for at, request in fresh))
            for (at, request), result in zip(fresh, recorded, strict=True):
                into[batch.at[at]] = self.journal.shortened(request.number, request.size, result)
                self._keep_for_probes(batch.item, batch.at[at], into[batch.at[at]])
                self._report(batch, at, result)
            self.journal.spending.add_examples(EVALUATE, len(fresh))

        try:
            await run_group([GroupTask(functools.partial(evaluate, batch, into)) for batch, into in batches])
        except (RpcError, ClientError):
            _, request, first = min(failed, key=lambda failure: failure[0])
            self.journal.fail(request, first)
            raise first from None
        finally:
            await self.journal.settled()

    async def _results(self, batch: _Batch, request: RecordedRequest, task: GroupTask) -> Results:
        """Return the results of a batch; a recorded rollout that only waits for its score does not run again."""
        waiting: list[Any] = [self.journal.rollout(each) for each in batch.requests]
        if all(result is not None for result in waiting):
            results: Results = waiting
        else:
            results = await self._call(batch, request, EVALUATE, task)
            for at, (each, result) in enumerate(zip(batch.requests, results, strict=True)):
                if result["status"] == ROLLOUT and waiting[at] is None:
                    rollout: Any = self.journal.record_rollout(each, result)
                    results[at] = rollout
        if any(result["status"] == ROLLOUT for result in results):
            results = await self._scored(batch.rows, results, request)
        return results

    async def _call(self, batch: _Batch, request: RecordedRequest, kind: str, task: GroupTask) -> Results:
        """Evaluate in one call, whose attempts count for `request`, until every example is conclusive."""
        rows = batch.rows
        call = self.evaluation(
            batch.item.candidate,
            rows,
            traced=batch.item.trace,
            items=_wire_items(batch),
            request=(request.key.candidate, request.key.row),
            group=None if self._scorers_read else batch.group,  # without a group trajectories are inline
            parse_error=functools.partial(self._too_large, rows),
            probe=functools.partial(self._probe, request),
        )
        reply = await self.fleet.call(call, self.journal.attempts(request, kind, task), pin=batch.pin)
        return reply.value or await self._one_by_one(batch, request, kind, task)

    def evaluation(
        self, candidate: Candidate, rows: Sequence[AnyRow], *, traced: bool = False, **members: Any
    ) -> Call[Results]:
        """Return the call that evaluates rows. `members`: further ones of `evaluation_call`."""
        reply = functools.partial(reply_with, self.prices)
        return evaluation_call(candidate, rows, reply, traced=traced or self._scorers_read, **members)

    def _too_large(self, rows: Sequence[AnyRow], error: Exception, seconds: float) -> Reply[Results] | None:
        """Return a failed example if its answer is too large; no results if that of several examples is."""
        excess = excess_of(error) if isinstance(error, AnswerTooLarge | LimitExceeded) else None
        if excess is None:
            return None
        if len(rows) > 1:
            return Reply([], "error", seconds, examples=0)
        return reply_with(self.prices, [oversized(excess, seconds)])

    async def _one_by_one(self, batch: _Batch, request: RecordedRequest, kind: str, task: GroupTask) -> Results:
        """Evaluate each example of a batch by itself, as their answer together is too large to be read."""
        results: Results = []
        for position, own in zip(batch.at, batch.requests, strict=True):
            item = EvaluationItem(_candidate_at(batch.item, position), [batch.item.rows[position]], batch.item.trace)
            single = replace(batch, item=item, at=[0])
            results += await self._call(single, request if own.recorded else own, kind, task)
        return results

    async def _scored(self, rows: Sequence[AnyRow], results: Results, request: RecordedRequest) -> Results:
        """Return the same results with the scores of another endpoint."""
        if self.scorers is None:
            raise BadResponse(NO_SCORE)
        at = [position for position, result in enumerate(results) if result["status"] == ROLLOUT]
        call = self._score_call([rows[position] for position in at], [results[position] for position in at])
        call = replace(call, probe=functools.partial(self._probe, request, of_scorers=True))
        reply = await self.scorers.call(call, self.journal.attempts(request, SCORE))
        merged = list(results)
        for position, score in zip(at, reply.value, strict=True):
            if score["status"] == ROLLOUT:
                raise BadResponse("the endpoint that scores answered `rollout` again, and no score")
            merged[position] = with_score(results[position], score)
        return merged

    # --- probes ------------------------------------------------------------------------------------------------------

    def _keep_for_probes(self, item: EvaluationItem, at: int, result: dict[str, Any]) -> None:
        if result["status"] == "ok":
            row = item.rows[at]
            self._scored_examples.pop(row.id, None)
            self._scored_examples[row.id] = (_candidate_at(item, at), row, result)
            if len(self._scored_examples) > PROBES_KEPT:
                del self._scored_examples[next(iter(self._scored_examples))]

    def _probe(
        self, request: RecordedRequest, ended: Container[str], *, of_scorers: bool = False
    ) -> tuple[Call[Results], AttemptLog] | None:
        """Return a call that evaluates or scores the latest row with a score that is none of these again; its log."""
        for candidate, other, result in reversed(self._scored_examples.values()):
            if other.id not in ended:
                if not of_scorers:
                    return self.evaluation(candidate, [other]), self.journal.attempts(request, PROBE)
                rollout = {**complete(result), "status": ROLLOUT, "score": None}
                return self._score_call([other], [rollout]), self.journal.attempts(request, PROBE)
        return None

    def _score_call(self, rows: Sequence[AnyRow], rollouts: Results) -> Call[Results]:
        exact = self.scorers is not None and self.scorers.offers(EXACT_VALUES)
        return score_call(rows, rollouts, self.prices, with_trajectory=self._scorers_read, exact=exact)

    def _report(self, batch: _Batch, at: int, result: dict[str, Any]) -> None:
        if self.on_example is not None:
            self.on_example(
                ExampleDone(
                    id=batch.item.rows[batch.at[at]].id,
                    candidate=_candidate_at(batch.item, batch.at[at]),
                    status=result["status"],
                    score=result["score"],
                    seconds=result["seconds"],
                    error=result.get("error"),
                    feedback=result.get("feedback"),
                )
            )


def score_call(
    rows: Sequence[AnyRow], rollouts: Results, prices: PriceTable, *, with_trajectory: bool = False, exact: bool
) -> Call[Results]:
    """Return the call that scores rollouts of these rows. `exact`: the scorer takes markers, else texts."""
    return Call(
        "score",
        {
            "batch": [row.wire for row in rows],
            "results": [as_rollout(one, with_trajectory=with_trajectory, exact=exact) for one in rollouts],
        },
        lambda answer: reply_with(prices, example_results(ScoreResult, answer, len(rows))),
        about=f"the score of {named(rows)}",
        needs="scoring",
        rows=[row.id for row in rows],
    )


def _candidate_at(item: EvaluationItem, position: int) -> Candidate:
    end = 0
    for candidate, size in item.parts:
        end += size
        if position < end:
            return candidate
    return item.candidate


def _keys(item: EvaluationItem) -> Iterable[RequestKey]:
    rows = iter(item.rows)
    for candidate, size in item.parts or [(item.candidate, len(item.rows))]:
        digest = digest_of(candidate)
        for row in itertools.islice(rows, size):
            yield evaluate_key(digest, row.digest, row.id, item.trace)


def _joined(items: Sequence[EvaluationItem], most: int) -> list[EvaluationItem]:
    """Return the items joined to as few of at most `most` rows as keeps each of them whole."""
    joined: list[EvaluationItem] = []
    for item in items:
        part = (item.candidate, len(item.rows))
        last = joined[-1] if joined else None
        if last is not None and len(last.rows) + len(item.rows) <= most:
            joined[-1] = replace(last, rows=[*last.rows, *item.rows], parts=[*last.parts, part])
        else:
            joined.append(replace(item, parts=[part]))
    return joined


def _wire_items(batch: _Batch) -> list[dict[str, Any]] | None:
    """Return `EvaluateParams.items`; an item with more rows than fit in one call has a single part, and is sliced."""
    parts = batch.item.parts if len(batch.at) == len(batch.item.rows) else [(batch.item.candidate, len(batch.at))]
    return [{"candidate": candidate, "size": size} for candidate, size in parts] if batch.item.parts else None
