"""Reflective datasets: made by the program from its traces, which stay where they were made, as its own state does."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gepa_client.errors import Interrupted
from gepa_client.fleet import Answered, Fleet, Pin
from gepa_client.gepa.adapter_state import STATE_KEY, AdapterState
from gepa_client.gepa.batch_evaluator import Item, Window, instance_of
from gepa_client.gepa.evaluation_batches import Trajectory
from gepa_client.gepa.images import with_images
from gepa_client.journal.entries import REFLECTIVE_DATASET
from gepa_client.journal.journal import Journal, Slot
from gepa_client.journal.recorded_output import whole
from gepa_client.journal.requests import other_request
from gepa_client.transport.rpc import RpcClient
from protocol import Candidate, DiscoverResult, JsonValue
from protocol.errors import ProgramFailed, TrajectoryExpired

Dataset = dict[str, list[dict[str, JsonValue]]]
"""Records by component."""


@dataclass
class ReflectiveDatasets:
    """Asks the instance that holds a minibatch's traces; what the journal knows is not asked for.

    `state`: what the program gave to be kept for it, and which instance has it. `call_timeout_s`: of one call.
    """

    fleet: Fleet
    journal: Journal
    window: Window
    discovery: DiscoverResult
    call_timeout_s: float
    state: AdapterState = field(default_factory=AdapterState)

    async def make(self, candidate: Candidate, traced: list[Trajectory], components: list[str]) -> Dataset:
        """Records of a traced minibatch, with their images as `gepa.Image`.

        Traces that are gone are made once more, into `traced`.

        Raises:
            ProgramFailed: the program could not make them; that is recorded too.
            Interrupted, RpcError, ClientError: nothing came of it.
        """
        told = [[trajectory.row.digest, _without_trace(whole(trajectory.scored))] for trajectory in traced]
        request = other_request(
            REFLECTIVE_DATASET,
            f"make a reflective dataset of {len(traced)} examples for {', '.join(components)}",
            candidate,
            told,
            components,
        )

        async def ask(slot: Slot) -> JsonValue:
            try:
                return await self._ask_for_records(slot, candidate, traced, components)
            except TrajectoryExpired:
                item = Item(candidate, [trajectory.row for trajectory in traced], trace=True)
                fresh = await self.window.retrace(item, slot)
                traced[:] = [
                    replace(trajectory, result=result) for trajectory, result in zip(traced, fresh, strict=True)
                ]
            try:
                return await self._ask_for_records(slot, candidate, traced, components)
            except TrajectoryExpired as error:
                raise Interrupted(
                    "paused", "trajectories expire as soon as they are made; raise max_trace_bytes"
                ) from error

        [slot] = self.journal.ask([request])
        answer: Any = await self._effect(slot, ask)
        self._keep_state(slot.number, answer)
        dataset: Dataset = with_images(answer["dataset"], answer.get("images") or {})
        return dataset

    async def _ask_for_records(
        self, slot: Slot, candidate: Candidate, traced: Sequence[Trajectory], components: list[str]
    ) -> JsonValue:
        instances = {instance for one in traced if (instance := instance_of(one.result)) is not None}
        batch = {
            "batch": [trajectory.row.wire for trajectory in traced],
            "results": [whole(trajectory.result) for trajectory in traced],
        }
        params = {"candidate": candidate, "eval_batch": batch, "components_to_update": components}
        return await self._ask_to_make(slot, params, Pin(min(instances) if instances else None))

    async def _ask_to_make(self, slot: Slot, params: Mapping[str, Any], pin: Pin) -> JsonValue:
        async def send(client: RpcClient, call_id: str | None) -> Answered[JsonValue]:
            if client.offers(STATE_KEY):
                await client.discover()  # another instance may answer since the last call, and know of no state
            state = self.state.params_for(client.instance_id)
            made = await client.make_reflective_dataset(
                {**params, **state}, call_id=call_id, timeout_s=self.call_timeout_s
            )
            answer: dict[str, Any] = {"dataset": made.dataset}
            if made.images:
                answer["images"] = {name: image.model_dump() for name, image in made.images.items()}
            if client.offers(STATE_KEY):
                answer |= {STATE_KEY: made.adapter_state, "made_by": client.instance_id}
            return Answered(answer)

        attempts = self.journal.attempts(slot, REFLECTIVE_DATASET)
        return await self.fleet.call(REFLECTIVE_DATASET, send, attempts, pin=pin)

    def _keep_state(self, number: int, answer: Mapping[str, Any]) -> None:
        """Remember the program's state and which instance has it.

        An instance that still runs has gone on from there since, as this run did. It has not where the answer comes
        from the run that this one was forked from: then the state travels with the next request.
        """
        if STATE_KEY in self.discovery.capabilities:
            made_by = answer.get("made_by") if number >= self.journal.inherited else None
            self.state.keep(answer.get(STATE_KEY), made_by)

    async def hand_over(self, state: JsonValue, candidate: Candidate) -> None:
        """Have a state taken over, by a reflective dataset that asks for no component; any candidate will do."""
        nothing: dict[str, Any] = {"eval_batch": {"batch": [], "results": []}, "components_to_update": []}
        params = {"candidate": candidate, **nothing}
        self.state.restore({STATE_KEY: state})
        request = other_request("adapter_state", "take over the adapter's state", state)
        [slot] = self.journal.ask([request])
        answer: Any = await self._effect(slot, lambda slot: self._ask_to_make(slot, params, Pin()))
        self._keep_state(slot.number, answer)

    async def _effect(self, slot: Slot, make: Callable[[Slot], Awaitable[JsonValue]]) -> JsonValue:
        """The recorded answer to a request that runs no examples, or the one `make` gives, once it is recorded.

        A `ProgramFailed` is an answer too. Raises: what `make` raises.
        """
        if slot.failure is not None:
            raise slot.failure
        if slot.recorded:
            return slot.answer
        with self.journal.live([slot]):
            try:
                [answer] = self.journal.record((slot, await make(slot)))
            except ProgramFailed as error:
                self.journal.fail(slot, error)
                raise
            await self.journal.settled()
        return answer


def _without_trace(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a result says, whichever instance keeps its trajectory."""
    return {key: value for key, value in result.items() if key not in ("trajectory", "trajectory_ref")}
