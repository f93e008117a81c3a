"""Reflective datasets: made by the program, or here of its traces; with images, and turned by it into proposals."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gepa.image import Image

from evolverpc_common.exact_values import readable
from evolverpc_common.model_prices import PriceTable
from gepa_client.errors import AnswerTooLarge, BadResponse, Interrupted
from gepa_client.fleet import Fleet, Pin
from gepa_client.fleet.handshake import OWN_RECORDS
from gepa_client.gepa.batch_evaluator import BatchEvaluator, EvaluationItem
from gepa_client.gepa.evaluation_results import Trajectory, instance_of, priced_reply
from gepa_client.gepa.reflective_records import REFERENCE, customary_records, reference_to
from gepa_client.gepa.rows import EXACT_VALUES, AnyRow, Row
from gepa_client.journal.entries import PROPOSAL, REFLECTIVE_DATASET
from gepa_client.journal.journal import Journal, KeyedCall, execute_missing
from gepa_client.journal.requests import RecordedRequest, RequestKey, complete, request_key
from gepa_client.transport.calls import Call, Reply
from gepa_client.transport.event_loop import GroupTask
from gepa_client.transport.responses import validated
from protocol import (
    Candidate,
    DiscoverResult,
    GetTracesResult,
    JsonValue,
    MakeReflectiveDatasetResult,
    ProposeNewTextsResult,
)
from protocol.errors import LimitExceeded, MethodNotFound, ProgramFailed, TrajectoryExpired

Dataset = dict[str, list[dict[str, JsonValue]]]
"""Records by component."""

Records = Mapping[str, Sequence[Mapping[str, Any]]]
"""A reflective dataset: records by component."""

ProposalJob = tuple[dict[str, str], Records, list[str]]
"""A candidate, its reflective dataset and the components to update."""

ProposedTexts = dict[str, str | None]
"""New texts by component; None for what a program gave that is no text."""

MAX_RETRACES = 5
"""How often a minibatch is traced again for one dataset, if its server is replaced each time."""

STATE_KEY = "adapter_state"
"""The name of the capability, of the member in params and results, and of the entry in GEPA's checkpoint."""

_OF_TRACES = ("trajectory", "trajectory_ref")


@dataclass
class AdapterState:
    """The state that a program last gave to be kept for it, None if there is none.

    `made_by`: the instance that gave it, None if it came from a checkpoint, so that no instance knows it.
    """

    value: JsonValue = None
    made_by: str | None = None

    def checkpoint(self) -> dict[str, JsonValue]:
        """Return the state for GEPA's checkpoint; empty if there is none."""
        return {} if self.value is None else {STATE_KEY: self.value}

    def params_for(self, instance: str | None) -> dict[str, Any]:
        """Return what a request to this instance must carry: nothing if the instance made the state itself."""
        return {} if instance == self.made_by else self.checkpoint()


@dataclass(frozen=True)
class DatasetJob:
    """A reflective dataset to make: of a candidate's traced minibatch, for these components."""

    candidate: Candidate
    traced: list[Trajectory]
    components: list[str]

    @property
    def key(self) -> RequestKey:
        """What identifies the request in the journal."""
        scored = [
            [each.row.digest, {name: part for name, part in complete(each.scored).items() if name not in _OF_TRACES}]
            for each in self.traced
        ]  # the same whichever instance keeps the trajectories
        return request_key(
            REFLECTIVE_DATASET,
            f"make a reflective dataset of {len(self.traced)} examples for {', '.join(self.components)}",
            self.candidate,
            scored,
            self.components,
        )


@dataclass
class ReflectiveDatasets:
    """Gets records from the program that makes its own, else makes them of its traces, unless the journal has them.

    The instance that keeps the traces of a minibatch is asked. `state`: the program's state, and the instance that has
    it. `seed`: of the run; each dataset has a seed of its own for the choice between
    several steps of a component.
    """

    fleet: Fleet
    journal: Journal
    evaluator: BatchEvaluator
    discovery: DiscoverResult
    seed: int = 0
    state: AdapterState = field(default_factory=AdapterState)
    _retracing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Held by the one job that traces its minibatch again: a server may have room for the traces of one alone."""

    @property
    def overlap(self) -> bool:
        """Whether datasets may be made at once: an adapter, or a program with state, may build on the one before."""
        return not (self.discovery.limits.whole_batches or STATE_KEY in self.discovery.capabilities)

    async def make(self, jobs: Sequence[DatasetJob]) -> list[Dataset | ProgramFailed]:
        """Return the records of each job, with their images as `gepa.Image`; several jobs are requested at once.

        A failure of the program takes the place of records that it could not make; that is recorded too. Traces that
        are gone are made once more, into `traced`; again only if the process that kept them is gone too.

        Raises:
            Interrupted, RpcError, ClientError: there is no answer.
        """
        answers = await self._recorded(
            [job.key for job in jobs], lambda at, request, task: self._made(jobs[at], request, task)
        )
        return [
            answer if isinstance(answer, ProgramFailed) else with_images(answer["dataset"], answer.get("images") or {})
            for answer in answers
        ]

    async def _made(self, job: DatasetJob, request: RecordedRequest, task: GroupTask) -> JsonValue:
        tried = list(job.traced)
        try:
            return await self._request_records(job, request, task)
        except TrajectoryExpired:
            task.begun = False  # nothing is lost if another job fails meanwhile
        async with self._retracing:
            task.begun = True
            for _ in range(MAX_RETRACES):
                if job.traced == tried:  # else another job of the same minibatch has traced it
                    item = EvaluationItem(job.candidate, [each.row for each in tried], trace=True)
                    fresh = await self.evaluator.retrace(item, request)
                    job.traced[:] = [replace(each, result=result) for each, result in zip(tried, fresh, strict=True)]
                tried = list(job.traced)
                try:
                    return await self._request_records(job, request, task)
                except TrajectoryExpired as error:
                    if self._kept_by_one_process(tried):
                        why = "trajectories expire as soon as they are made; raise max_trace_bytes"
                        raise Interrupted("paused", why) from error
        raise Interrupted(
            "paused",
            f"trajectories were made again {MAX_RETRACES} times, and each time the server that kept them ended; "
            "its log may show why",
        )

    def _kept_by_one_process(self, traced: Sequence[Trajectory]) -> bool:
        """Whether one process keeps all traces and still runs: if it lacks them, it has dropped them itself."""
        instances = {instance_of(trajectory.result) for trajectory in traced}
        running = {endpoint.instance for endpoint in self.fleet.endpoints if endpoint.up}
        return len(instances) == 1 and instances <= running | {None}

    async def hand_over(self, state: JsonValue, candidate: Candidate) -> None:
        """Hand a state to the program, by a reflective dataset without components; any candidate will do."""
        empty: dict[str, Any] = {"eval_batch": {"batch": [], "results": []}, "components_to_update": []}
        params = {"candidate": candidate, **empty}
        self.state = AdapterState(state)
        key = request_key("adapter_state", "take over the adapter's state", state)
        [answer] = await self._recorded([key], lambda _at, request, task: self._call(request, params, Pin(), task))
        if isinstance(answer, ProgramFailed):
            raise answer

    async def _request_records(self, job: DatasetJob, request: RecordedRequest, task: GroupTask) -> JsonValue:
        instances = {instance for one in job.traced if (instance := instance_of(one.result)) is not None}
        pin = Pin(min(instances) if instances else None)
        results = [complete(trajectory.result) for trajectory in job.traced]
        if OWN_RECORDS not in self.discovery.capabilities:
            traces = await self._traces(results, request, pin, task)
            examples = [
                (_data_of(one.row, trace), {**result, **trace})
                for one, result, trace in zip(job.traced, results, traces, strict=True)
            ]
            return customary_records(examples, job.components, job.candidate, seed=self.seed + request.number)
        if EXACT_VALUES not in self.discovery.capabilities:
            results = [{**result, "output": readable(result.get("output"))} for result in results]
        batch = {"batch": [trajectory.row.wire for trajectory in job.traced], "results": results}
        params = {"candidate": job.candidate, "eval_batch": batch, "components_to_update": job.components}
        return await self._call(request, params, pin, task)

    async def _traces(
        self, results: Sequence[Mapping[str, Any]], request: RecordedRequest, pin: Pin, task: GroupTask
    ) -> list[dict[str, JsonValue]]:
        """Return for each result its trajectory, and the data of its example if the server alone has that."""
        refs: list[str] = [result.get("trajectory_ref") or "" for result in results]
        if not any(refs):
            return [{}] * len(results)
        kept = [ref for ref in refs if ref]

        async def fetched(refs: list[str]) -> dict[str, dict[str, JsonValue]]:
            def read(answer: JsonValue) -> Reply[dict[str, dict[str, JsonValue]]]:
                traces = validated(GetTracesResult, answer).traces
                if len(traces) != len(refs):
                    raise BadResponse(f"the server answered {len(traces)} traces for {len(refs)} refs")
                return Reply({ref: trace.model_dump() for ref, trace in zip(refs, traces, strict=True)})

            call = Call("get_traces", {"refs": refs}, read, about=REFLECTIVE_DATASET)
            reply = await self.fleet.call(call, self.journal.attempts(request, REFLECTIVE_DATASET, task), pin=pin)
            return reply.value

        try:
            traces = await fetched(kept)
        except (AnswerTooLarge, LimitExceeded):
            traces = {}
            for ref in kept:
                traces |= await fetched([ref])
        except MethodNotFound as error:  # of another server, as that which kept them has gone
            raise TrajectoryExpired(refs=kept) from error
        return [traces.get(ref, {}) for ref in refs]

    async def _call(self, request: RecordedRequest, params: Mapping[str, Any], pin: Pin, task: GroupTask) -> JsonValue:
        def parse(answer: JsonValue) -> Reply[dict[str, Any]]:
            made = validated(MakeReflectiveDatasetResult, answer)
            value: dict[str, Any] = {"dataset": made.dataset}
            if made.images:
                value["images"] = {name: image.model_dump() for name, image in made.images.items()}
            if STATE_KEY in self.discovery.capabilities:
                value[STATE_KEY] = made.adapter_state
            return priced_reply(value, made.usage, self.evaluator.prices)

        call = Call(
            "make_reflective_dataset",
            params,
            parse,
            about=REFLECTIVE_DATASET,
            instance_params=lambda instance: self.state.params_for(instance),
        )
        reply = await self.fleet.call(call, self.journal.attempts(request, REFLECTIVE_DATASET, task), pin=pin)
        answer = reply.value
        return {**answer, "made_by": reply.instance} if STATE_KEY in answer else answer

    async def _recorded(
        self,
        keys: Sequence[RequestKey],
        execute: Callable[[int, RecordedRequest, GroupTask], Awaitable[JsonValue]],
    ) -> list[Any]:
        """Return each recorded answer, or that of `execute` once it is recorded; a `ProgramFailed` takes its place.

        The program's state is kept with the instance that has it. An instance that still runs has continued from there,
        as this run did; but not if the answer comes from the run that this one was forked from: the state then travels
        with the next request. Raises: what `execute` raises.
        """
        requests = self.journal.ask(keys)
        answers = await execute_missing(
            self.journal, requests, lambda at, task: execute(at, requests[at], task), failures=(ProgramFailed,)
        )
        if STATE_KEY in self.discovery.capabilities:
            for request, answer in zip(requests, answers, strict=True):
                if not isinstance(answer, ProgramFailed):
                    made_by = answer.get("made_by") if request.number >= self.journal.inherited else None
                    self.state = AdapterState(answer.get(STATE_KEY), made_by)
        return answers


def proposal_call(at: int, job: ProposalJob, *, takes_images: bool, prices: PriceTable) -> KeyedCall:
    """Return the call that has the program propose new texts for a job, which is the iteration's number `at`.

    Endpoints with the capability `proposals` are asked. `takes_images`: the program has the capability `images`;
    another one gets the data URLs that its steps had. A text for another component than requested is a `BadResponse`.
    """
    candidate, records, components = job
    dataset, images = without_images(records)
    if not takes_images:
        dataset, images = _resolved(dataset, images, "data:{media_type};base64,{base64}".format_map), {}
    params = {"candidate": candidate, "reflective_dataset": dataset, "components_to_update": components}
    params |= {"images": images} if images else {}

    def parse(answer: JsonValue) -> Reply[ProposedTexts]:
        made = validated(ProposeNewTextsResult, answer)
        return priced_reply({**dict.fromkeys(made.refused or {}), **made.texts}, made.usage, prices)

    def checked(texts: ProposedTexts) -> JsonValue:
        if other := sorted(set(texts) - set(components)):
            raise BadResponse(f"the program proposed texts for components not asked for: {', '.join(other)}")
        return {**texts}

    call = Call("propose_new_texts", params, parse, about=PROPOSAL, needs="proposals", optional={"images": "images"})
    return KeyedCall(request_key(PROPOSAL, f"have the program propose new texts, job {at}", params), call, checked)


# --- images ----------------------------------------------------------------------------------------------------------

Images = Mapping[str, Mapping[str, str]]
"""`ImageContent` as JSON, by the id that records name it by."""


def with_images(value: Any, images: Images) -> Any:
    """Return records with an `Image` in place of each `{"$image": id}` that `images` holds."""
    return _resolved(value, images, lambda known: Image(base64_data=known["base64"], media_type=known["media_type"]))


def _resolved(value: Any, images: Images, made_of: Callable[[Mapping[str, str]], Any]) -> Any:
    if not images:
        return value
    if isinstance(value, dict):
        known = images.get(value[REFERENCE]) if value.keys() == {REFERENCE} else None
        if known is not None:
            return made_of(known)
        return {key: _resolved(part, images, made_of) for key, part in value.items()}
    if isinstance(value, list):
        return [_resolved(part, images, made_of) for part in value]
    return value


def _data_of(row: AnyRow, trace: Mapping[str, JsonValue]) -> JsonValue:
    if isinstance(row, Row) or row.data is not None:
        return row.data
    if "data" not in trace:
        raise BadResponse(
            f"row {row.id!r} is at the server alone, which gave neither its data nor a ref: no record can show it"
        )
    return trace["data"]


def without_images(value: Any) -> tuple[Any, dict[str, dict[str, str]]]:
    """Return records as JSON, with `{"$image": id}` in place of each `Image`; and the images by id."""
    images: dict[str, dict[str, str]] = {}

    def replaced(part: Any) -> Any:
        if isinstance(part, Image):
            return reference_to(_content(part), images)
        if isinstance(part, Mapping):
            return {key: replaced(each) for key, each in part.items()}
        if isinstance(part, list | tuple):
            return [replaced(each) for each in part]
        return part

    return replaced(value), images


def images_described(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the records with `(image/png, 1,234 bytes)` in place of each image."""
    written, images = without_images(records)
    described: list[dict[str, Any]] = _resolved(
        written, images, lambda known: f"({known['media_type']}, {len(known['base64'].rstrip('=')) * 3 // 4:,} bytes)"
    )
    return described


def _content(image: Image) -> dict[str, str]:
    """Return the image itself; one given by path or URL is read as GEPA reads it.

    Raises:
        ValueError: it lies at a URL. OSError: it cannot be read.
    """
    if image.base64_data is not None and image.media_type is not None:
        return {"media_type": image.media_type, "base64": image.base64_data}
    url: str = image.to_openai_content_part()["image_url"]["url"]
    head, _, text = url.partition(";base64,")
    if not head.startswith("data:image/"):
        raise ValueError("an image at a URL cannot be sent to the program; give the image itself")
    return {
        "media_type": head.removeprefix("data:"),
        "base64": base64.b64encode(base64.b64decode(text, validate=True)).decode(),
    }
