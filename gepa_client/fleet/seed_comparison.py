"""Whether two servers give the same results: a few rows are evaluated with the seed at one that joins, and compared.

The results differ if the noise of the program is too unlikely to be the reason.
"""

import asyncio
import functools
import itertools
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from evolverpc_common.display_text import counted, one_line
from evolverpc_common.equal_json import same_json
from gepa_client.errors import ClientError, NoVerdict, summary
from gepa_client.fleet.endpoint import Endpoint, attempt_once
from gepa_client.fleet.handshake import same_code
from gepa_client.transport.calls import AttemptLog, Call
from gepa_client.transport.event_loop import GroupTask, run_group
from protocol import DiscoverResult
from protocol.errors import RpcError

Results = list[dict[str, Any]]
"""`ExampleResult`s of the contract as JSON."""

_CHANCE = 1 / 5000
"""How likely noise alone may make two equal servers look different, over all rows that are compared."""

NO_VERDICT = ("infra_error", "cancelled", "timeout")
"""Statuses that state nothing of the program: a host, or the load of a machine, made them."""

_VALUE_SHOWN, _BEFORE = 60, 20
"""Characters of a value in a message; those that are equal in both before the first that differs."""


_VALUES = {
    "output": "output",
    "score": "score",
    "objective_scores": "objective scores",
    "feedback": "feedback",
    "component_feedback": "feedback on components",
}


@dataclass(frozen=True)
class Difference:
    """`what` differs on a row: the value `here`, at the server that is compared, and that at the `first` one."""

    row: str
    what: str
    here: Any
    first: Any

    def __str__(self) -> str:
        here, first = (json.dumps(value, ensure_ascii=False) for value in (self.here, self.first))
        pairs = enumerate(zip(here, first, strict=False))
        same = next((at for at, (a, b) in pairs if a != b), min(len(here), len(first)))
        cut = same - _BEFORE if same > _BEFORE and max(len(here), len(first)) > _VALUE_SHOWN else 0
        shown = [f"{'…' if cut else ''}{one_line(text[cut:], _VALUE_SHOWN)}" for text in (here, first)]
        return f"row {one_line(self.row, 40)}: {self.what} {shown[0]} instead of {shown[1]}"


def difference(row: str, first: Results, other: Results, *, exact: bool) -> Difference | None:
    """Return how the results of two servers on a row differ; None if they need not.

    Compared are status, output, scores and feedback, but of failures the status alone, of results of `NO_VERDICT`
    nothing, and no score that another server gives. A value that varies within one of the servers is noise; one that
    does not differs if it is another one at the other server. `exact`: the program is deterministic.
    """
    every = [*first, *other]
    if any(result["status"] in NO_VERDICT for result in every):
        return None
    names = ["output"] if any(result["status"] == "rollout" for result in every) else list(_VALUES)
    for name in ["status", *names]:
        theirs, ours = ([_value(name, result) for result in results] for results in (first, other))
        alike = all(same_json(a, b, exact=exact) for values in (theirs, ours) for a, b in pairwise(values))
        if alike and not same_json(ours[0], theirs[0], exact=exact):
            return Difference(row, _VALUES.get(name, name), ours[0], theirs[0])
    return None


def _value(name: str, result: Mapping[str, Any]) -> Any:
    if name == "status":
        return "ok" if result["status"] == "rollout" else result["status"]
    return result.get(name) if result["status"] in ("ok", "rollout") else None


def _is_certain(differing: int, rows: int, evaluations: int) -> bool:
    """Return whether noise is too unlikely to have made `differing` of the rows differ in all evaluations.

    `evaluations`: of each of these rows, at each server. A row on which a program draws its result differs in this way
    with a probability of at most 2 / 4 ** evaluations: that of a coin, all heads at one server and all tails at the
    other.
    """
    return math.comb(rows, differing) * (2 * 0.25**evaluations) ** differing <= _CHANCE


SHOWN, CAUSE_SHOWN = 3, 200
"""Differences that a message names, and characters of an error in it."""

Slot = Callable[[Call[Results]], AbstractAsyncContextManager[Endpoint]]
"""Holds a slot of an endpoint that works, and whose results are those of the run, during a `with` block."""


@dataclass(eq=False)
class ComparedRows:
    """The rows of one call, and their results at the first server: one list for each evaluation."""

    call: Call[Results]
    first: list[Results] = field(default_factory=list)


@dataclass(frozen=True)
class Comparison:
    """How a server's results differ from the run's; `certain`: noise is too unlikely to be the reason.

    `evaluated`: the rows, with the first results at either server.
    """

    differences: list[Difference]
    certain: bool
    evaluated: list[tuple[str, Results]]

    def __str__(self) -> str:
        more = len(self.differences) - SHOWN
        shown = [str(each) for each in self.differences[:SHOWN]]
        shown += [f"and {counted(more, 'more difference')}"] if more > 0 else []
        doubt = "" if self.certain else ", which may be noise"
        return f"its results with the seed are not those of the run: {'; '.join(shown)}{doubt}"


@dataclass(eq=False)
class SeedComparison:
    """Compares servers by a few rows; what was evaluated at the first server serves all later comparisons.

    `calls`: each evaluates the seed on one of the rows, or on all if a batch must stay whole. `log`: of the attempts of
    a call. `is_exact`: whether the program is deterministic, at the first server and at one that declares this; one
    evaluation then shows a difference. `known`: returns the results of calls that the run has already, by their place
    among `calls`. `recorded`: what the run's journal makes of results. `width`: calls at once at one server, if less
    than it takes.
    """

    calls: Sequence[Call[Results]]
    log: Callable[[Call[Results]], AttemptLog]
    is_exact: Callable[[DiscoverResult], bool]
    known: Callable[[], Awaitable[Mapping[int, Results]]] | None = None
    recorded: Callable[[Results], Results] = lambda results: results
    width: int | None = None

    def __post_init__(self) -> None:
        self._rows = [ComparedRows(call) for call in self.calls]
        self._evaluating = asyncio.Lock()
        self._agreeing: list[DiscoverResult] = []
        self._verdicts: dict[tuple[str, str], str] = {}

    def verdict(self, url: str, discovery: DiscoverResult) -> str | None:
        """Return why the server process at an address is refused, "" if it is not; None if it must be compared."""
        if any(same_code(agreeing, discovery) for agreeing in self._agreeing):
            return ""
        return self._verdicts.get((url, discovery.server.instance_id))

    def agree(self, discovery: DiscoverResult, url: str | None = None) -> None:
        """Note that this server process, and all that surely have the same code, give the results of the run.

        `url`: None if the process is not known to run.
        """
        self._agreeing.append(discovery)
        if url is not None:
            self._verdicts[url, discovery.server.instance_id] = ""

    def refuse(self, url: str, discovery: DiscoverResult, why: str) -> None:
        """Note that this server process does not, so that it is not compared over and over."""
        self._verdicts[url, discovery.server.instance_id] = why

    async def has_results(self) -> bool:
        """Return whether results of the run are there to compare with, without another evaluation."""
        async with self._evaluating:
            await self._read_known()
        return any(rows.first for rows in self._rows)

    async def compare(self, endpoint: Endpoint, slot: Slot | None) -> Comparison:
        """Compare the results of an endpoint with the run's; evaluates rows that differ again, as `_is_certain` needs.

        `slot`: None if no endpoint works, so that what the run has must do: rows are then evaluated twice at most.

        Raises:
            NoVerdict: no row has results at both. RpcError, ClientError: as a call of the endpoint.
        """
        exact = endpoint.client.discovery is not None and self.is_exact(endpoint.client.discovery)
        doubtful = [(rows, list[Results]()) for rows in self._rows if endpoint.offers(rows.call.needs)]
        evaluated: list[tuple[str, Results]] = []
        compared = 0
        for evaluations in itertools.count(1):
            if slot is not None:
                await self._evaluate_first([rows for rows, _ in doubtful], evaluations, slot)
            doubtful = [(rows, own) for rows, own in doubtful if len(rows.first) >= (evaluations if slot else 1)]
            await self._evaluate_at(endpoint, doubtful)
            if evaluations == 1:
                if not doubtful:
                    raise NoVerdict("no row has a result of the first server to compare with")
                evaluated = [
                    (row, [rows.first[0][at], own[0][at]])
                    for rows, own in doubtful
                    for at, row in enumerate(rows.call.rows)
                ]
                compared = len(evaluated)
            found = [_differences(rows, own, exact=exact) for rows, own in doubtful]
            doubtful = [pair for pair, differing in zip(doubtful, found, strict=True) if differing]
            differing = [each for differing in found for each in differing]
            fewest = min([evaluations, *(len(rows.first) for rows, _ in doubtful)])
            certain = exact or _is_certain(len(differing), compared, fewest)
            if not differing or certain or (slot is None and evaluations > 1):
                return Comparison(differing, certain and bool(differing), evaluated)
        raise AssertionError("unreachable")

    async def _read_known(self) -> None:
        """Take over the results that the run has of rows without any."""
        if self.known is not None and not all(rows.first for rows in self._rows):
            for at, results in (await self.known()).items():
                if not self._rows[at].first:
                    self._rows[at].first.append(results)

    async def _evaluate_first(self, wanted: Sequence[ComparedRows], evaluations: int, slot: Slot) -> None:
        """Evaluate rows at endpoints that work until they have so many results.

        Raises:
            NoVerdict: none of the rows has a result, or one that had some has no further one.
        """
        failed: list[Exception] = []

        async def evaluate(rows: ComparedRows, _task: GroupTask) -> None:
            try:
                async with slot(rows.call) as endpoint:
                    rows.first.append(await self._evaluate(endpoint, rows.call))
            except (ClientError, RpcError) as error:
                failed.append(error)

        async with self._evaluating:  # several servers may join at once
            await self._read_known()
            missing = [rows for rows in wanted if len(rows.first) < evaluations]
            tasks = [GroupTask(functools.partial(evaluate, rows)) for rows in missing]
            await run_group(tasks, self.width or len(tasks))
        if failed and (evaluations > 1 or not any(rows.first for rows in wanted)):
            raise NoVerdict(f"nothing to compare with, as no server that works gave it: {summary(failed[0])}")

    async def _evaluate_at(self, endpoint: Endpoint, wanted: Sequence[tuple[ComparedRows, list[Results]]]) -> None:
        async def evaluate(rows: ComparedRows, own: list[Results], _task: GroupTask) -> None:
            own.append(await self._evaluate(endpoint, rows.call))

        slots = endpoint.client.discovery.limits.max_concurrency if endpoint.client.discovery is not None else 1
        tasks = [GroupTask(functools.partial(evaluate, rows, own)) for rows, own in wanted]
        await run_group(tasks, min(slots, self.width or slots))

    async def _evaluate(self, endpoint: Endpoint, call: Call[Results]) -> Results:
        reply = await attempt_once(endpoint, call, self.log(call))
        results: Results = self.recorded(reply.value)
        if not results:
            raise NoVerdict(f"{call.about}: its answer is too large to be compared")
        for row, result in zip(call.rows, results, strict=True):
            if result["status"] in NO_VERDICT:
                error = result.get("error") or {}
                cause = one_line(f": {error.get('type')}: {error.get('message')}", CAUSE_SHOWN) if error else ""
                raise NoVerdict(
                    f"row {one_line(row, 40)} has no result that can be compared ({result['status']}){cause}"
                )
        return results


def _differences(rows: ComparedRows, own: Sequence[Results], *, exact: bool) -> list[Difference]:
    found = (
        difference(row, [results[at] for results in rows.first], [results[at] for results in own], exact=exact)
        for at, row in enumerate(rows.call.rows)
    )
    return [each for each in found if each is not None]
