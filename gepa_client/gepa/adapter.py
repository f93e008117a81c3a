"""A GEPA adapter whose program lives behind servers: evaluation, reflective datasets, state, rows."""

import asyncio
import uuid
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from gepa.core.adapter import ProposalFn

from evolverpc_common.model_prices import PriceTable
from gepa_client.errors import BadResponse, ClientError, ConnectionLost, Interrupted, InterruptStatus, Refused
from gepa_client.evolution.commits import Commits
from gepa_client.fleet import Address, Answered, Fleet, FleetEvent, read_roster
from gepa_client.gepa.adapter_state import STATE_KEY
from gepa_client.gepa.batch_evaluator import ExampleDone, Item, Window
from gepa_client.gepa.evaluation_batches import Batch, Batches
from gepa_client.gepa.failures import Failures
from gepa_client.gepa.proposals import ProposalJob, Proposals, Records
from gepa_client.gepa.reflective_datasets import ReflectiveDatasets
from gepa_client.gepa.rows import AnyRow, RowLoader, as_row
from gepa_client.gepa.trace_policy import TraceParents
from gepa_client.journal.entries import EVALUATE, RETRACE
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import other_request
from gepa_client.journal.usage import Tally
from gepa_client.transport.deadlines import CALL_TIMEOUT_S
from gepa_client.transport.error_format import summary
from gepa_client.transport.event_loop_thread import Bridge
from gepa_client.transport.rpc import RpcClient
from gepa_client.transport.server_rows import held_rows
from protocol import Candidate, DiscoverResult, JsonValue
from protocol.errors import ProgramFailed, RpcError

T = TypeVar("T")


ANYWHERE = ("proposals", "mutations", "finalize")
"""Capabilities that are the fleet's where any endpoint has them; those of evaluations are the leader's."""


class RemoteAdapter:
    """Give it to `gepa.optimize(adapter=...)`; the program behind `url` is evaluated over the network.

    Use it in a `with` block, or `close` it. Its methods are synchronous, as GEPA's loop is; they may be called from any
    thread, from several at once, and from a notebook, where another event loop runs.

    `url`: one endpoint or several that serve the same program; examples go to whichever has room. `fleet_file`: more of
    them, a line each, read again while it changes. `token`, `token_file`, `allow_insecure`: see `RpcClient`.
    `failure_score`: what an example that failed by the candidate's fault scores, in every objective too.
    `max_attempts`: calls for one example before the run pauses; `first_backoff_s`: the mean wait in seconds after the
    first of them fails. `max_outage_s`: seconds without any endpoint before the run pauses.
    `score_with`: endpoints that score what the program answers as `rollout`; `score_token_file`: their token
    (GEPA_TOKEN without it).
    `on_example`: called with an `ExampleDone` for each result, in the order of arrival, on the adapter's own thread.
    `on_fleet`: called with a `FleetEvent` when an endpoint joins, rests, returns or leaves.
    `call_timeout_s`: deadline of calls that run no examples (reflective datasets, proposals), in seconds.
    `splits`: which of the splits that servers hold must be the same everywhere, by default all.
    `journal`: what the run was told before, and where everything is recorded; without it nothing is kept.
    `recorded`: what `discover` once said, for a replay: then nothing is connected.

    `discovery`: what the leading server said of itself, and what others offer besides. `tally`, `retraced`: what
    evaluations took, and, apart from them, what it took to trace minibatches again whose trajectories were lost.
    `propose_new_texts`: the program's own proposals, with which GEPA needs no `reflection_lm` and ignores one; None
    where the program proposes nothing. Set it to None to have a `reflection_lm` or `reflection_strategy` propose.
    `failures`: what GEPA swallowed. `commits`: what is known of commits that mutations made; an endpoint that lacks one
    is brought it. `allow_mixed_programs`: servers whose programs have different names may share the work.
    `prices`: of models whose calls servers report without a cost; by default those of litellm's table.

    Raises:
        Refused, ConnectionLost, BadResponse, RpcError: no server can be used; nothing is left open.
    """

    def __init__(
        self,
        url: str | Sequence[str] = (),
        *,
        fleet_file: Path | None = None,
        token: str | None = None,
        token_file: Path | str | None = None,
        failure_score: float = 0.0,
        max_attempts: int = 5,
        first_backoff_s: float = 0.5,
        max_outage_s: float = 600.0,
        score_with: str | Sequence[str] = (),
        score_token_file: Path | str | None = None,
        on_example: Callable[[ExampleDone], None] | None = None,
        on_fleet: Callable[[FleetEvent], None] | None = None,
        allow_insecure: bool = False,
        call_timeout_s: float = CALL_TIMEOUT_S,
        splits: Callable[[DiscoverResult], list[str]] | None = None,
        allow_mixed_programs: bool = False,
        prices: PriceTable | None = None,
        journal: Journal | None = None,
        recorded: DiscoverResult | None = None,
    ) -> None:
        self.call_timeout_s = call_timeout_s
        self.failures = Failures()
        self.journal = journal or Journal(uuid.uuid4().hex)
        self.commits = Commits()
        self._tracing = TraceParents()
        self._batches = Batches(failure_score)

        def fleet(splits: Callable[[DiscoverResult], list[str]] | None = None) -> Fleet:
            return Fleet(
                max_attempts=max_attempts,
                first_backoff_s=first_backoff_s,
                max_outage_s=max_outage_s,
                wanted=splits,
                allow_mixed_programs=allow_mixed_programs,
                on_event=on_fleet or (lambda _event: None),
                on_token=self.journal.secrets.add,
                bundles=self.commits,
            )

        def addresses(urls: str | Sequence[str], file: Path | str | None) -> list[Address]:
            listed = [urls] if isinstance(urls, str) else urls
            return [Address(one, token=token, token_file=file, allow_insecure=allow_insecure) for one in listed]

        self.fleet = fleet(splits or (lambda discovery: list(discovery.datasets)))
        self.scorers = fleet() if score_with else None
        self._bridge = Bridge()
        fleets = [self.fleet, *([self.scorers] if self.scorers is not None else [])]
        self._closing = weakref.finalize(self, _close, self._bridge, fleets)  # also when nobody closes it
        try:
            if recorded is not None:
                self.discovery = recorded
            else:
                leader = self._bridge.run(
                    _open(self.fleet, addresses(url, token_file), fleet_file, allow_insecure=allow_insecure)
                )
                self.discovery = _with_what_others_offer(leader, self.fleet)
                if self.scorers is not None:
                    scorers = addresses(score_with, score_token_file)
                    _check_scorers(self.discovery, self._bridge.run(_open(self.scorers, scorers)), self.scorers)
        except BaseException:
            self.close()
            raise
        self._window = Window(
            self.fleet, self.discovery, self.journal, self.scorers, on_example, prices or PriceTable({})
        )
        self._datasets = ReflectiveDatasets(self.fleet, self.journal, self._window, self.discovery, self.call_timeout_s)
        self._proposals = Proposals(self.fleet, self.journal, self.call_timeout_s)
        # GEPA reads the attribute unconditionally.
        self.propose_new_texts: ProposalFn | None = self._propose_new_texts if self.offers("proposals") else None
        for one in fleets:
            self.journal.halt.listen(one.interrupt)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what runs and close the connections; safe to call twice."""
        self._closing()

    @property
    def seed_candidate(self) -> Candidate:
        """The program's own first candidate."""
        return dict(self.discovery.program.seed_candidate)

    @property
    def in_flight(self) -> int:
        """Calls being waited for at this moment."""
        return self.fleet.in_flight

    @property
    def tally(self) -> Tally:
        """What evaluations took."""
        return self.journal.spend[EVALUATE]

    @property
    def retraced(self) -> Tally:
        """What it took to trace minibatches again."""
        return self.journal.spend[RETRACE]

    @property
    def callbacks(self) -> list[TraceParents]:
        """For `gepa.optimize(callbacks=[*adapter.callbacks, ...])`: then only what GEPA reads is traced."""
        return [self._tracing]

    def offers(self, capability: str) -> bool:
        """Whether the program, or the server before it, has this capability, at any endpoint that has answered."""
        return capability in self.discovery.capabilities or self.fleet.offers(capability)

    # --- evaluation --------------------------------------------------------------------------------------------------

    def evaluate(self, batch: Sequence[Any], candidate: Candidate, capture_traces: bool = False) -> Batch:
        """Run a candidate on rows (`Row`, `HeldRow`, or any JSON values); scores are in the rows' order.

        Raises:
            Interrupted: an example got no result. RpcError, ClientError: the call is wrong or the program cannot run.
        """
        return self._evaluate([(candidate, batch)], trace=capture_traces)[0]

    def batch_evaluate(
        self, items: Sequence[tuple[Candidate, Sequence[Any]]], capture_traces: bool | None = None
    ) -> list[Batch]:
        """Run several candidates on their batches at once, within the servers' limits; in the items' order.

        A program with a `batch_evaluate` of its own (the capability) gets all of them in one call.

        Without `capture_traces` everything is traced, as GEPA expects, unless `callbacks` are installed and tell that
        nobody will read the traces (a program that wants whole batches is always asked for them).
        """
        wanted = self._tracing.wanted()
        if capture_traces is None:
            # A GEPA adapter's `evaluate` may behave otherwise when it traces, and in one process GEPA has it trace
            # everything it evaluates here: the same run needs the same request.
            capture_traces = wanted or self.discovery.limits.whole_batches
        return self._evaluate(items, trace=capture_traces, together="batch_evaluate" in self.discovery.capabilities)

    def score_rows(self, part: str, candidate: Candidate, rows: Sequence[Any]) -> Batch:
        """`evaluate` on a number line of its own, beside the search: rows that GEPA never sees."""
        line, mine = self.journal.line(part), self._window
        window = Window(self.fleet, self.discovery, line, self.scorers, mine.on_example, mine.prices)
        item = Item(candidate, [as_row(row) for row in rows], trace=False)
        [results] = self.wait_for(window.evaluate([item]))
        return self._batches.make(item, results)

    def _evaluate(
        self, pairs: Sequence[tuple[Candidate, Sequence[Any]]], *, trace: bool, together: bool = False
    ) -> list[Batch]:
        items = [Item(candidate, [as_row(row) for row in rows], trace) for candidate, rows in pairs]
        try:
            evaluate = self._window.evaluate_together if together else self._window.evaluate
            evaluated = self.wait_for(evaluate(items))
        except ProgramFailed as error:
            self.failures.record("evaluate", error)
            raise
        return [self._batches.make(item, done) for item, done in zip(items, evaluated, strict=True)]

    # --- reflection --------------------------------------------------------------------------------------------------

    def make_reflective_dataset(
        self, candidate: Candidate, eval_batch: Batch, components_to_update: Sequence[str]
    ) -> dict[str, list[dict[str, JsonValue]]]:
        """Records for each component, made by the program from its traces.

        Trajectories that the server has let go are traced once more, for reflection only: the scores stand.

        Raises:
            ProgramFailed: the program could not make them; also kept in `failures`, as GEPA swallows it.
            Interrupted: anything else. GEPA swallows every `Exception` here, so it is none.
        """
        try:
            if eval_batch.trajectories is None:
                raise BadResponse("the batch was evaluated without traces")
            making = self._datasets.make(candidate, eval_batch.trajectories, list(components_to_update))
            return self.wait_for(making)
        except ProgramFailed as error:
            self.failures.record("make_reflective_dataset", error)
            raise
        except (RpcError, ClientError) as error:
            status: InterruptStatus = "paused" if isinstance(error, ConnectionLost) else "failed"
            raise Interrupted(status, f"make_reflective_dataset: {summary(error)}") from error

    def propose(self, jobs: Sequence[ProposalJob]) -> list[dict[str, str] | Exception]:
        """The program's new texts for each job, all asked for at once; the exception for a job that failed in it.

        These exceptions are also kept in `failures`.

        Raises:
            Interrupted: anything else. GEPA swallows every `Exception` here, so it is none.
        """
        try:
            answers = self.wait_for(self._proposals.make(jobs))
        except (RpcError, ClientError) as error:
            raise Interrupted("failed", f"propose_new_texts: {summary(error)}") from error
        for answer in answers:
            if isinstance(answer, Exception):
                self.failures.record("reflection", answer)
        return answers

    def _propose_new_texts(
        self, candidate: dict[str, str], reflective_dataset: Records, components_to_update: list[str]
    ) -> dict[str, str]:
        """One job of `propose`; raises what the program failed with, for GEPA to log and try once more."""
        [texts] = self.propose([(candidate, reflective_dataset, components_to_update)])
        if isinstance(texts, Exception):
            raise texts
        return texts

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the adapter's own event loop to its end; the result, or what it raised."""
        try:
            return self._bridge.run(work)
        except (Interrupted, KeyboardInterrupt):
            self._tracing.reset()  # the run is over, and GEPA will not say so
            raise

    def abandon(self, why: str) -> None:
        """Once `journal.halt` is pulled: give up what programs still do, from any thread."""
        self._bridge.run(self.fleet.cut(why))

    # --- state -------------------------------------------------------------------------------------------------------

    def get_adapter_state(self) -> dict[str, JsonValue]:
        """For GEPA's checkpoint: the state the program last gave, empty where it keeps none."""
        return self._datasets.state.checkpoint()

    def set_adapter_state(self, state: Mapping[str, JsonValue]) -> None:
        """Restore what `get_adapter_state` returned.

        A GEPA adapter (a program of whole batches) gets it at once, even when empty: GEPA restores at every start, and
        an adapter may begin anew then. Any other program gets the state it once gave with the next reflective dataset.
        """
        if STATE_KEY not in self.discovery.capabilities:
            if state:
                raise ValueError("the server keeps no adapter state, but there is one to restore")
            return
        self._datasets.state.restore(state)
        if self.discovery.limits.whole_batches:
            self.wait_for(self._datasets.hand_over(state.get(STATE_KEY, {}), self.seed_candidate))

    # --- rows and the end of a run -----------------------------------------------------------------------------------

    def dataset(self, split: str, first_id: int = 0) -> RowLoader:
        """A loader over a split the server holds; the rows stay there.

        Raises:
            RpcError: no such split, or the server holds none.
        """
        return RowLoader(self.wait_for(self.held_rows(split)), first_id)

    async def held_rows(self, split: str) -> list[AnyRow]:
        """Every row of a split the server holds."""
        return await held_rows(self.fleet.clients[0], split)

    def finalize(
        self, best_candidate: Candidate, best_score: float, run: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> str | None:
        """Tell the program what the run found (`run` as the contract's `RunInfo`); returns what it wants said, if any.

        Does nothing where the program does not want to know. `timeout_s`: seconds for all of it, repetitions included.

        Raises:
            TimeoutError: it took longer; the program may still hear of it.
        """
        if not self.offers("finalize"):
            return None
        params = {"best_candidate": best_candidate, "best_score": best_score, "run": dict(run)}
        return self.wait_for(self._finalize(params, timeout_s))

    async def _finalize(self, params: Mapping[str, Any], timeout_s: float | None) -> str | None:
        line = self.journal.line(f"finalize-{params['run'].get('metric_calls')}")
        [slot] = line.ask([other_request("finalize", "tell the program of the best candidate", params)])

        async def send(client: RpcClient, call_id: str | None) -> Answered[str | None]:
            return Answered(await client.finalize(params, call_id=call_id, timeout_s=self.call_timeout_s))

        async with asyncio.timeout(timeout_s):
            if slot.recorded:
                told: str | None = slot.answer
                return told
            with line.live([slot]):
                message = await self.fleet.call("finalize", send, line.attempts(slot, "finalize"), needs="finalize")
                [told] = line.record((slot, message))
                await line.settled()
            return told


async def _open(
    fleet: Fleet, addresses: list[Address], file: Path | None = None, *, allow_insecure: bool = False
) -> DiscoverResult:
    listed = read_roster(file, allow_insecure=allow_insecure) if file is not None else []
    discovery = await fleet.open(addresses + listed)
    if file is not None:
        fleet.follow(file)
    return discovery


def _with_what_others_offer(leader: DiscoverResult, fleet: Fleet) -> DiscoverResult:
    """What is recorded of a mixed fleet: a replay has nothing else to go by."""
    further = [each for each in ANYWHERE if each not in leader.capabilities and fleet.offers(each)]
    return leader.model_copy(update={"capabilities": [*leader.capabilities, *further]}) if further else leader


def _check_scorers(program: DiscoverResult, scorer: DiscoverResult, scorers: Fleet) -> None:
    """Raises `Refused` where the endpoint cannot score, or holds other rows under the names of the program's."""
    if not scorers.offers("scoring"):
        raise Refused(f"{scorer.program.name}, given to score, does not offer `score` (capability `scoring`)")
    for split, held in program.datasets.items():
        known = scorer.datasets.get(split)
        if known is not None and known.digest != held.digest:
            raise Refused(f"the endpoint given to score holds other rows as {split!r} than the program does")


def _close(bridge: Bridge, fleets: Sequence[Fleet]) -> None:
    for fleet in fleets:
        bridge.run(fleet.aclose())
    bridge.close()
