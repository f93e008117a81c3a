"""A program as a service: the methods of the contract, with params checked against the program, and its draining."""

import asyncio
import base64
import binascii
import hashlib
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import orjson

from evolverpc_common.installation import installed_version
from protocol import (
    KNOWN_VERSIONS,
    METHODS,
    ApplyMutationParams,
    CancelParams,
    CancelResult,
    Candidate,
    CandidateItem,
    DiscoverParams,
    DiscoverResult,
    EvaluateParams,
    Example,
    FinalizeParams,
    GetResultParams,
    GetTracesParams,
    ImportCommitsParams,
    ImportCommitsResult,
    JsonValue,
    ListExamplesParams,
    MakeReflectiveDatasetParams,
    Merge,
    OutlineCodeParams,
    OutlineCodeResult,
    ProgramInfo,
    ProposeNewTextsParams,
    ScoreParams,
    ServerInfo,
)
from protocol.code import added_to, commit_of
from protocol.errors import LimitExceeded, TrajectoryExpired, UnknownCandidate
from protocol.methods import CONTRACT_FILE, Method, RpcDiscoverParams
from rpc_server import wire
from rpc_server.dispatch import Dispatcher, Handler
from rpc_server.memory_bounds import answer_bytes
from rpc_server.methods.call_ledger import CallJob, CallLedger, EvaluateJob, MethodJob, ScoreJob, answer_too_large
from rpc_server.methods.dataset_rows import Datasets
from rpc_server.methods.trace_store import TraceStore
from rpc_server.program.program import WRITE_TEXTS, Program, ProgramRefs, combined_limits
from rpc_server.program.program_digest import changed_files
from rpc_server.settings import Settings
from rpc_server.wire import invalid, read_params

if TYPE_CHECKING:
    from rpc_server.mutations.transaction import CodeMutations
    from rpc_server.worktrees.worktree_program import WorktreeProgram

Prepare = Callable[[Any, dict[str, Any]], CallJob]
"""From checked and raw params to a job; raises what the checks find."""

OWN_CAPABILITIES = frozenset(
    {"batch", "idempotency", "async", "partial", "cancel", "example_timeout", "refs", "openrpc"}
)
"""Capabilities of every server, in addition to the program's own."""


class Service:
    """One instance in front of one program, which it neither opens nor closes: its methods, calls and draining.

    `limits`: the server's. Handlers take params and return a result; they know models, not HTTP.
    """

    def __init__(
        self,
        program: Program,
        settings: Settings,
        datasets: Datasets,
        mutations: "CodeMutations | None" = None,
    ) -> None:
        self.instance_id = uuid.uuid4().hex
        self.limits = combined_limits(program.limits, settings)
        self._max_result_bytes = self.limits.max_result_bytes or settings.max_result_bytes
        self._max_bytes = answer_bytes()
        self._program = program
        self._drain_s = settings.drain_s
        self._language = settings.language
        self._datasets = datasets
        self._commits = cast("WorktreeProgram", program) if settings.has_trees else None
        self._mutations = mutations
        self._components = program.info.seed_candidate.keys()
        self._calls = CallLedger(settings, most_examples=self.limits.max_concurrency + settings.max_queue)
        self._refs = (
            ProgramRefs(self.instance_id)
            if "refs" in program.capabilities
            else TraceStore(instance_id=self.instance_id, max_bytes=settings.max_trace_bytes)
        )
        offered = {"datasets": bool(datasets), "commits": self._commits is not None, "mutations": mutations is not None}
        self._capabilities = (OWN_CAPABILITIES | program.capabilities) - {WRITE_TEXTS}
        self._capabilities |= {name for name, is_offered in offered.items() if is_offered}
        self._agent = None if mutations is None else mutations.agent_label
        self._folders = [settings.root, *([(settings.root / settings.program).parent] if settings.program else [])]
        self._discovery = orjson.Fragment(self._describe(program.info))
        self._openrpc = orjson.Fragment(orjson.dumps(orjson.loads(CONTRACT_FILE.read_bytes())))
        self.dispatcher = Dispatcher(self._table(), max_batch_entries=settings.max_batch_entries)

    @property
    def ready(self) -> bool:
        """True while new work is accepted."""
        return self._program.ready and not self._calls.draining

    async def drain(self) -> None:
        """Refuse new work; return when nothing runs and every result was collected, or after `drain_s`."""
        await self._calls.drain(self._drain_s)

    async def close(self) -> None:
        """Cancel calls that no connection holds."""
        await self._calls.close()

    def _table(self) -> dict[str, Handler]:
        """Return the methods offered by name: the core's, and those with an advertised capability.

        What costs nothing to repeat (`Method.idempotent`) is answered at once; any other method is a job.
        """
        offered = [method for method in METHODS.values() if method.capability in (None, *self._capabilities)]
        return {method.name: self._answer(method) if method.idempotent else self._job(method) for method in offered}

    def _own(self, method: Method) -> Callable[..., Any]:
        """Return the function of this class that is named after a method."""
        own: Callable[..., Any] = getattr(self, f"_{method.name.replace('.', '_')}")
        return own

    # Answered at once.

    def _answer(self, method: Method) -> Handler:
        answer = self._own(method)

        async def handler(params: dict[str, Any]) -> JsonValue:
            return await answer(read_params(method.params, params))

        return handler

    async def _discover(self, _: DiscoverParams) -> JsonValue:
        files = None if self._commits is not None else self._program.info.files
        changed = await asyncio.to_thread(changed_files, files or {}, self._folders)
        if not changed:
            return self._discovery
        return orjson.Fragment(self._describe(self._program.info.model_copy(update={"changed_files": changed})))

    async def _rpc_discover(self, _: RpcDiscoverParams) -> JsonValue:
        return self._openrpc

    async def _list_examples(self, request: ListExamplesParams) -> JsonValue:
        page = self._datasets.list(request.split, offset=request.offset, limit=request.limit)
        return page.model_dump(exclude_unset=True)

    async def _get_traces(self, request: GetTracesParams) -> JsonValue:
        traces = self._refs.traces(request.refs)
        if (size := sum(map(len, traces))) > self._max_bytes:
            raise answer_too_large(size, self._max_bytes, len(traces))
        return {"traces": [*map(orjson.Fragment, traces)]}

    async def _get_result(self, request: GetResultParams) -> JsonValue:
        return await self._calls.get(request.call_id, request.wait_s, partial=request.partial)

    async def _cancel(self, request: CancelParams) -> JsonValue:
        return CancelResult(status=await self._calls.cancel(request.call_id)).model_dump()

    async def _import_commits(self, request: ImportCommitsParams) -> JsonValue:
        assert self._commits is not None, "offered with the capability alone"  # noqa: S101  # see `table`
        bundles = [_decoded(f"bundles[{at}]", text) for at, text in enumerate(request.bundles)]
        return ImportCommitsResult(commits=await self._commits.import_commits(bundles)).model_dump()

    async def _outline_code(self, request: OutlineCodeParams) -> JsonValue:
        assert self._commits is not None, "offered with the capability alone"  # noqa: S101  # see `table`
        self._check_candidate(request.candidate)
        return OutlineCodeResult(outline=await self._commits.outline(request.candidate)).model_dump()

    # Work for the program.

    def _job(self, method: Method) -> Handler:
        prepare: Prepare = self._own(method)

        async def handler(params: dict[str, Any]) -> JsonValue:
            self._check_sizes(params)
            request = read_params(method.params, params)
            meta = request.meta
            if meta is None or meta.call_id is None:
                return await self._calls.run(prepare(request, params))
            return await self._calls.submit(
                meta.call_id, _digest(method.name, params), lambda: prepare(request, params), meta.wait_s
            )

        return handler

    def _evaluate(self, request: EvaluateParams, _params: dict[str, Any]) -> CallJob:
        self._check_candidate(request.candidate)
        if request.items is not None:
            self._check_items(request.items, len(request.batch))
        return EvaluateJob(
            self._program,
            self._refs,
            request,
            self._datasets.filled(request.batch),
            self._datasets.hidden(request.batch),
            max_result_bytes=self._max_result_bytes,
            max_bytes=self._max_bytes,
        )

    def _make_reflective_dataset(self, request: MakeReflectiveDatasetParams, params: dict[str, Any]) -> CallJob:
        self._check_candidate(request.candidate)
        self._check_components(request.components_to_update, request.candidate)
        batch = request.eval_batch.batch
        _check_lengths("eval_batch.results", len(request.eval_batch.results), len(batch))
        eval_batch = {
            "batch": self._filled(batch, params["eval_batch"]["batch"]),
            "results": self._refs.incoming(params["eval_batch"]["results"]),
        }
        return self._call("make_reflective_dataset", {**params, "eval_batch": eval_batch})

    def _propose_new_texts(self, request: ProposeNewTextsParams, params: dict[str, Any]) -> CallJob:
        self._check_candidate(request.candidate)
        self._check_components(request.components_to_update, request.candidate)
        return self._call("propose_new_texts", params)

    def _score(self, request: ScoreParams, params: dict[str, Any]) -> CallJob:
        _check_lengths("results", len(request.results), len(request.batch))
        batch = self._datasets.filled(request.batch)
        return ScoreJob(self._program, batch, params["results"], request.meta)

    def _finalize(self, request: FinalizeParams, params: dict[str, Any]) -> CallJob:
        self._check_candidate(request.best_candidate)
        return self._call("finalize", params)

    def _apply_mutation(self, request: ApplyMutationParams, _params: dict[str, Any]) -> CallJob:
        mutations = self._mutations
        assert mutations is not None, "offered with the capability alone"  # noqa: S101  # see `table`
        self._check_candidate(request.candidate)
        if isinstance(request.mutation, Merge):
            self._check_candidate(request.mutation.other)

        async def apply(job: CallJob) -> JsonValue:
            job.message = "waiting for its turn"
            result = await mutations.apply(request, partial(setattr, job, "message"))
            return result.model_dump(exclude_none=True)

        return MethodJob(apply)

    def _call(self, method: str, params: dict[str, Any]) -> CallJob:
        own = {name: value for name, value in params.items() if name != "_meta"}

        async def call(_: CallJob) -> JsonValue:
            try:
                return await self._program.call(method, own)
            except TrajectoryExpired as error:
                raise self._refs.expired(error) from None

        return MethodJob(call)

    def _filled(self, batch: list[Example], raw: list[JsonValue]) -> list[JsonValue]:
        filled = self._datasets.filled(batch)
        return raw if filled is batch else [example.model_dump(exclude_unset=True) for example in filled]

    # Checks that need more than the model.

    def _check_sizes(self, params: dict[str, Any]) -> None:
        """Refuse a batch that is too long before its examples or results are read."""
        holder = params.get("eval_batch", params)
        if not isinstance(holder, dict):
            return
        for given in (holder.get("batch"), holder.get("results")):
            if isinstance(given, list) and len(given) > self.limits.max_batch_size:
                raise LimitExceeded(limit="max_batch_size", allowed=self.limits.max_batch_size, given=len(given))

    def _check_items(self, items: list[CandidateItem], examples: int) -> None:
        if "batch_evaluate" not in self._capabilities:
            raise invalid("items", "the program evaluates one candidate a call (it lacks capability `batch_evaluate`)")
        if (total := sum(item.size for item in items)) != examples:
            raise invalid("items", f"their sizes add up to {total}, but there are {examples} examples")
        for item in items:
            self._check_candidate(item.candidate)

    def _check_candidate(self, candidate: Candidate) -> None:
        if candidate.keys() != self._components:
            raise UnknownCandidate(
                unknown=sorted(candidate.keys() - self._components),
                missing=sorted(self._components - candidate.keys()),
            )
        if self._commits is not None:
            try:
                commit_of(candidate), added_to(candidate)
            except ValueError as error:
                raise UnknownCandidate(str(error)) from None

    def _check_components(self, components: Iterable[str], candidate: Candidate) -> None:
        """Check components of a checked candidate; without commits `added_components` is an ordinary name."""
        added = added_to(candidate) if self._commits is not None else {}
        unknown = sorted(set(components) - candidate.keys() - added.keys())
        if unknown:
            raise UnknownCandidate("no such component", unknown=unknown)

    def _describe(self, program: ProgramInfo) -> bytes:
        discovery = DiscoverResult(
            protocol_versions=list(KNOWN_VERSIONS),
            server=ServerInfo(
                name="evolverpc",
                version=installed_version(),
                language=self._language,
                instance_id=self.instance_id,
                agent=self._agent,
            ),
            program=program,
            datasets=self._datasets.infos,
            capabilities=sorted(self._capabilities),
            limits=self.limits,
        )
        return wire.write(discovery.model_dump(exclude_none=True))


def _decoded(path: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise invalid(path, f"is not base64: {error}") from None


def _check_lengths(path: str, results: int, examples: int) -> None:
    if results != examples:
        raise invalid(path, f"{results} results for {examples} examples")


def _digest(method: str, params: dict[str, Any]) -> bytes:
    """Return equal digests for equal requests; `_meta` is not part of the request."""
    requested = {name: value for name, value in params.items() if name != "_meta"}
    return hashlib.blake2b(wire.canonical([method, requested])).digest()
