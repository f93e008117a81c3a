"""A GEPA adapter whose program lives behind a server: evaluation, reflective datasets, state, rows."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from gepa_client.adapter_state import STATE_KEY, AdapterState
from gepa_client.batches import Batch, Batches, Trajectory, trajectories
from gepa_client.bridge import Bridge
from gepa_client.causes import summary
from gepa_client.deadlines import CALL_TIMEOUT_S
from gepa_client.errors import BadResponse, ClientError, ConnectionLost, Interrupted, InterruptStatus
from gepa_client.failures import Failures
from gepa_client.held import held_rows
from gepa_client.retry import FIRST_BACKOFF_S, Retries
from gepa_client.rows import RowLoader, wire_example
from gepa_client.rpc import RpcClient
from gepa_client.tracing import TraceParents
from gepa_client.window import ExampleDone, Item, Tally, Window
from protocol import Candidate, DiscoverResult, JsonValue, MakeReflectiveDatasetResult
from protocol.errors import ProgramFailed, RpcError, TrajectoryExpired

T = TypeVar("T")


class RemoteAdapter:
    """Give it to `gepa.optimize(adapter=...)`; the program behind `url` is evaluated over the network.

    Use it in a `with` block, or `close` it. Its methods are synchronous, as GEPA's loop is; they may be called from a
    notebook, where another event loop runs.

    `token`, `token_file`, `allow_insecure`: see `RpcClient`. `failure_score`: what an example that failed by the
    candidate's fault scores, in every objective too. `max_attempts`: calls for one example before the run pauses;
    `first_backoff_s`: the mean wait in seconds after the first of them fails.
    `on_example`: called with an `ExampleDone` for each result, in the order of arrival, on the adapter's own thread.
    `on_lost`: called with the number of the next attempt and `max_attempts` after each call that lost its connection.
    `call_timeout_s`: deadline of calls that run no examples (reflective datasets, proposals), in seconds.

    `discovery`: what the server said of itself. `tally`, `retraced`: what evaluations took, and, apart from them, what
    it took to trace minibatches again whose trajectories were lost. `failures`: what GEPA swallowed.

    Raises:
        Refused, ConnectionLost, BadResponse, RpcError: the server cannot be used; nothing is left open.
    """

    propose_new_texts = None  # the engine reads it unconditionally; the program's proposals are `ProgramReflection`

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: Path | str | None = None,
        failure_score: float = 0.0,
        max_attempts: int = 5,
        first_backoff_s: float = FIRST_BACKOFF_S,
        on_example: Callable[[ExampleDone], None] | None = None,
        on_lost: Callable[[int, int], None] | None = None,
        allow_insecure: bool = False,
        call_timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        self.call_timeout_s = call_timeout_s
        self.tally = Tally()
        self.retraced = Tally()
        self.failures = Failures()
        self.client = RpcClient(url, token=token, token_file=token_file, allow_insecure=allow_insecure)
        self._tracing = TraceParents()
        self._batches = Batches(failure_score)
        self._state = AdapterState()
        self._bridge = Bridge()
        self._closing = weakref.finalize(self, _close, self._bridge, self.client)  # also when nobody closes it
        try:
            self.discovery: DiscoverResult = self._bridge.run(_open(self.client))
        except BaseException:
            self.close()
            raise
        retries = Retries(max_attempts=max_attempts, first_backoff_s=first_backoff_s, on_lost=on_lost)
        self._window = Window(self.client, self.discovery.limits, retries, on_example)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what runs and close the connection; safe to call twice."""
        self._closing()

    @property
    def seed_candidate(self) -> Candidate:
        """The program's own first candidate."""
        return dict(self.discovery.program.seed_candidate)

    @property
    def in_flight(self) -> int:
        """Examples being waited for at this moment."""
        return self._window.in_flight

    @property
    def callbacks(self) -> list[TraceParents]:
        """For `gepa.optimize(callbacks=[*adapter.callbacks, ...])`: then only what GEPA reads is traced."""
        return [self._tracing]

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
        """Run several candidates on their batches at once, within the server's limits; in the items' order.

        Without `capture_traces` everything is traced, as GEPA expects, unless `callbacks` are installed and tell that
        nobody will read the traces (a program that wants whole batches is always asked for them).
        """
        wanted = self._tracing.wanted()
        if capture_traces is None:
            # A GEPA adapter's `evaluate` may behave otherwise when it traces, and in one process GEPA has it trace
            # everything it evaluates here: the same run needs the same request.
            capture_traces = wanted or self.discovery.limits.whole_batches
        return self._evaluate(items, trace=capture_traces)

    def _evaluate(self, pairs: Sequence[tuple[Candidate, Sequence[Any]]], *, trace: bool) -> list[Batch]:
        items = [Item(candidate, [wire_example(row) for row in rows], trace) for candidate, rows in pairs]
        try:
            evaluated = self.wait_for(self._window.evaluate(items, self.tally))
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
            return self.wait_for(self._reflective_dataset(candidate, eval_batch, list(components_to_update)))
        except ProgramFailed as error:
            self.failures.record("make_reflective_dataset", error)
            raise
        except (RpcError, ClientError) as error:
            status: InterruptStatus = "paused" if isinstance(error, ConnectionLost) else "failed"
            raise Interrupted(status, f"make_reflective_dataset: {summary(error)}") from error

    async def _reflective_dataset(
        self, candidate: Candidate, eval_batch: Batch, components: list[str]
    ) -> dict[str, list[dict[str, JsonValue]]]:
        traced = eval_batch.trajectories
        if traced is None:
            raise BadResponse("the batch was evaluated without traces")
        try:
            return await self._ask_for_records(candidate, traced, components)
        except TrajectoryExpired:
            await self.client.discover()  # most often another instance answers now
            item = Item(candidate, [trajectory.example for trajectory in traced], trace=True)
            [fresh] = await self._window.evaluate([item], self.retraced)
            traced[:] = trajectories(item, fresh)
        try:
            return await self._ask_for_records(candidate, traced, components)
        except TrajectoryExpired as error:
            raise Interrupted(
                "paused", "trajectories expire as soon as they are made; raise max_trace_bytes"
            ) from error

    async def _ask_for_records(
        self, candidate: Candidate, traced: Sequence[Trajectory], components: list[str]
    ) -> dict[str, list[dict[str, JsonValue]]]:
        instance = _instance_of(traced) or self.client.instance_id
        params: dict[str, Any] = {
            "candidate": candidate,
            "eval_batch": {
                "batch": [trajectory.example for trajectory in traced],
                "results": [trajectory.result for trajectory in traced],
            },
            "components_to_update": components,
            **self._state.params_for(instance),
        }
        answer = await self._ask_to_make(params)
        if self.client.offers(STATE_KEY):
            self._state.keep(answer.adapter_state, instance)
        return answer.dataset

    async def _ask_to_make(self, params: Mapping[str, Any]) -> MakeReflectiveDatasetResult:
        return await self.ask(
            "make_reflective_dataset",
            lambda call_id: self.client.make_reflective_dataset(params, call_id=call_id, timeout_s=self.call_timeout_s),
        )

    async def ask(self, what: str, call: Callable[[str | None], Awaitable[T]]) -> T:
        """One call that runs no examples, repeated by the same rules; `call` takes the call id, None where unknown."""

        async def attempt(call_id: str, _number: int) -> T:
            return await call(call_id if self.client.offers("idempotency") else None)

        return await self._window.retries.run(what, attempt)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the adapter's own event loop to its end; the result, or what it raised."""
        try:
            return self._bridge.run(work)
        except (Interrupted, KeyboardInterrupt):
            self._tracing.reset()  # the run is over, and GEPA will not say so
            raise

    # --- state -------------------------------------------------------------------------------------------------------

    def get_adapter_state(self) -> dict[str, JsonValue]:
        """For GEPA's checkpoint: the state the program last gave, empty where it keeps none."""
        return self._state.checkpoint()

    def set_adapter_state(self, state: Mapping[str, JsonValue]) -> None:
        """Restore what `get_adapter_state` returned.

        A GEPA adapter (a program of whole batches) gets it at once, even when empty: GEPA restores at every start, and
        an adapter may begin anew then. Any other program gets the state it once gave with the next reflective dataset.
        """
        if not self.client.offers(STATE_KEY):
            if state:
                raise ValueError("the server keeps no adapter state, but there is one to restore")
            return
        self._state.restore(state)
        if self.discovery.limits.whole_batches:
            self._hand_over(state.get(STATE_KEY, {}))

    def _hand_over(self, state: JsonValue) -> None:
        """Have the state taken over, by a reflective dataset that asks for no component."""
        nothing: dict[str, Any] = {"eval_batch": {"batch": [], "results": []}, "components_to_update": []}
        params = {"candidate": self.seed_candidate, **nothing, STATE_KEY: state}
        answer = self.wait_for(self._ask_to_make(params))
        self._state.keep(answer.adapter_state, self.client.instance_id)

    # --- rows and the end of a run -----------------------------------------------------------------------------------

    def dataset(self, split: str, first_id: int = 0) -> RowLoader:
        """A loader over a split the server holds; the rows stay there.

        Raises:
            RpcError: no such split, or the server holds none.
        """
        return RowLoader(self.wait_for(held_rows(self.client, split)), first_id)

    def finalize(
        self, best_candidate: Candidate, best_score: float, run: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> str | None:
        """Tell the program what the run found (`run` as the contract's `RunInfo`); returns what it wants said, if any.

        Does nothing where the program does not want to know. `timeout_s`: seconds for all of it, repetitions included.

        Raises:
            TimeoutError: it took longer; the program may still hear of it.
        """
        if not self.client.offers("finalize"):
            return None
        params = {"best_candidate": best_candidate, "best_score": best_score, "run": dict(run)}
        return self.wait_for(self._finalize(params, timeout_s))

    async def _finalize(self, params: Mapping[str, Any], timeout_s: float | None) -> str | None:
        async with asyncio.timeout(timeout_s):
            return await self.ask(
                "finalize",
                lambda call_id: self.client.finalize(params, call_id=call_id, timeout_s=self.call_timeout_s),
            )


def _instance_of(traced: Sequence[Trajectory]) -> str | None:
    """The instance that holds these trajectories, as the first reference names it."""
    for trajectory in traced:
        ref = trajectory.result.get("trajectory_ref")
        if isinstance(ref, str):
            return ref.partition("/")[0]
    return None


async def _open(client: RpcClient) -> DiscoverResult:
    await client.__aenter__()
    return await client.discover()


def _close(bridge: Bridge, client: RpcClient) -> None:
    bridge.run(client.aclose())
    bridge.close()
