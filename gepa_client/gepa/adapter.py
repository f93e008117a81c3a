"""A GEPA adapter for programs behind servers: evaluation, reflective datasets, proposals, state, rows."""

import asyncio
import dataclasses
import itertools
import uuid
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from gepa.core.adapter import ProposalFn

from evolverpc_common.model_prices import PriceTable
from gepa_client.errors import BadResponse, ClientError, ConnectionLost, Interrupted, InterruptStatus, Refused, summary
from gepa_client.fleet import Address, Fleet, FleetEvent, read_endpoints_file
from gepa_client.fleet.endpoints_file import line_address
from gepa_client.fleet.example_retries import BACKOFF_S
from gepa_client.fleet.slots import InFlightLimit
from gepa_client.gepa.batch_evaluator import BatchEvaluator, EvaluationItem, ExampleDone
from gepa_client.gepa.evaluation_results import Batch, BatchBuilder, Results
from gepa_client.gepa.hooks import Failures, TracePolicy
from gepa_client.gepa.known_results import KnownResults
from gepa_client.gepa.reflective_datasets import (
    STATE_KEY,
    AdapterState,
    Dataset,
    DatasetJob,
    ProposalJob,
    ProposedTexts,
    Records,
    ReflectiveDatasets,
    proposal_call,
)
from gepa_client.gepa.rows import AnyRow, RowLoader, as_row, list_server_rows
from gepa_client.journal.answer_entries import CommitGraph
from gepa_client.journal.entries import EVALUATE
from gepa_client.journal.journal import Journal, KeyedCall, gather_recorded
from gepa_client.journal.requests import Tally, digest_of, request_key
from gepa_client.transport.calls import AttemptLog, Call, Reply
from gepa_client.transport.event_loop import EventLoopThread
from gepa_client.transport.responses import validated
from protocol import Candidate, DiscoverResult, FinalizeResult, JsonValue
from protocol.errors import ProgramFailed, RpcError

T = TypeVar("T")


SHARED_CAPABILITIES = ("proposals", "mutations", "finalize")
"""Capabilities that the fleet has if any endpoint has them; those of evaluations are the leader's."""


class RemoteAdapter:
    """Pass it to `gepa.optimize(adapter=...)`; the program behind `url` is evaluated over the network.

    Use it in a `with` block, or `close` it. Its methods are synchronous, as GEPA's loop is; they may be called from any
    thread, from several at once, and from a notebook, where another event loop runs.

    `url`: one endpoint or several that serve the same program; examples go to any that has room. `fleet_file`: further
    endpoints, a line each, read again while it changes. `token`, `token_file`, `allow_insecure`: see `RpcClient`.
    `failure_score`: the score of an example that failed because of the candidate, in every objective too.
    `max_attempts`: calls for one example before the run pauses; `first_backoff_s`: the mean wait in seconds after the
    first of them fails. `max_outage_s`: seconds without any endpoint before the run pauses.
    `concurrency`: examples that all endpoints together evaluate or score at once. `example_timeout_s`: seconds that
    one example may run, if less than the server's own limit; endpoints without `example_timeout` are refused.
    `score_with`: endpoints that score what the program answers as `rollout`, as lines of a fleet file.
    `on_example`: called with an `ExampleDone` for each result, in the order of arrival, on the adapter's own thread.
    `on_fleet`: called with a `FleetEvent` when an endpoint joins, cools down, returns or leaves.
    `splits`: chooses the servers' splits that must be the same everywhere, by default all.
    `journal`: the record of the run's earlier processes, which also records this one; without it nothing is kept.
    `recorded`: a recorded answer to `discover`, for a replay: then nothing is connected.

    `discovery`: what the leading server declares, and the capabilities that others add. `tally`: what
    evaluations took, without those that traced minibatches again whose trajectories were lost.
    `propose_new_texts`: the program's own proposals, with which GEPA needs no `reflection_lm` and ignores one; None
    if the program proposes nothing. Set it to None to have a `reflection_lm` or `reflection_strategy` propose.
    `evaluator`, `batches`: what evaluates rows, and what makes batches and scores of their results.
    `failures`: failures that GEPA swallowed. `commits`: the commits that mutations made; an endpoint that lacks one
    gets it uploaded. `allow_mixed_programs`: servers whose programs have different names, or give other results, may
    share the work.
    `prices`: of models whose calls servers report without a cost; by default those of litellm's table.
    `known`: results that serve later requests; set it if the program is deterministic.
    `raced`: the batches of the survivors of a race, by the digest of their texts, which the next `batch_evaluate`
    returns. `complete`: changes a candidate before it is evaluated alone; returns False if all its rows are to fail.
    `seed`: of the run, for the choice between several steps of a component in a reflective dataset.

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
        first_backoff_s: float = BACKOFF_S,
        max_outage_s: float = 600.0,
        concurrency: int | None = None,
        example_timeout_s: float | None = None,
        score_with: str | Sequence[str] = (),
        on_example: Callable[[ExampleDone], None] | None = None,
        on_fleet: Callable[[FleetEvent], None] | None = None,
        allow_insecure: bool = False,
        splits: Callable[[DiscoverResult], list[str]] | None = None,
        allow_mixed_programs: bool = False,
        prices: PriceTable | None = None,
        seed: int = 0,
        journal: Journal | None = None,
        recorded: DiscoverResult | None = None,
    ) -> None:
        self.failures = Failures()
        self.journal = journal or Journal(uuid.uuid4().hex)
        self.commits = CommitGraph()
        self._trace_policy = TracePolicy()
        self.batches = BatchBuilder(failure_score)
        self.known: KnownResults | None = None
        self.raced: dict[str, Batch] = {}
        self.complete: Callable[[Candidate], bool] = lambda _candidate: True
        limit = InFlightLimit(concurrency)

        def fleet(splits: Callable[[DiscoverResult], list[str]] | None = None) -> Fleet:
            return Fleet(
                max_attempts=max_attempts,
                first_backoff_s=first_backoff_s,
                max_outage_s=max_outage_s,
                splits=splits,
                allow_mixed_programs=allow_mixed_programs,
                example_timeout_s=example_timeout_s,
                concurrency=limit,
                on_event=on_fleet or (lambda _event: None),
                on_token=self.journal.secrets.add,
                bundles=self.commits.leading_to,
            )

        urls, lines = ([given] if isinstance(given, str) else given for given in (url, score_with))
        addresses = [Address(one, token=token, token_file=token_file, allow_insecure=allow_insecure) for one in urls]
        self.fleet = fleet(splits or (lambda discovery: list(discovery.datasets)))
        self.scorers = fleet() if score_with else None
        self._loop = EventLoopThread()
        fleets = [self.fleet, *([self.scorers] if self.scorers is not None else [])]
        self.finalized_by: str | None = None
        """The endpoint that answered `finalize`."""
        self._closing = weakref.finalize(self, _close, self._loop, fleets)  # also if `close` is never called
        try:
            if recorded is not None:
                self.discovery = recorded
            else:
                leader = self._loop.run(_open(self.fleet, addresses, fleet_file, allow_insecure=allow_insecure))
                shared = [each for each in SHARED_CAPABILITIES if self.fleet.offers(each)]
                known = dict.fromkeys([*leader.capabilities, *shared])  # so that a replay has those of a mixed fleet
                self.discovery = leader.model_copy(update={"capabilities": list(known)})
                if self.scorers is not None:
                    scorers = [line_address(line, Path(), allow_insecure=allow_insecure) for line in lines]
                    scorers = [dataclasses.replace(one, token=None if one.token_file else token) for one in scorers]
                    _check_scorers(self.discovery, self._loop.run(_open(self.scorers, scorers)), self.scorers)
        except BaseException:
            self.close()
            raise
        self.evaluator = BatchEvaluator(
            self.fleet,
            self.discovery,
            self.journal,
            self.scorers,
            on_example,
            prices or PriceTable({}),
        )
        self._datasets = ReflectiveDatasets(self.fleet, self.journal, self.evaluator, self.discovery, seed)
        self._expected_datasets: list[DatasetJob] = []
        self._made_datasets: list[tuple[DatasetJob, int, Dataset | ProgramFailed]] = []
        self.evaluated: list[list[int]] = []
        """The numbers of the entries of the results that `batch_evaluate` gave last, by item."""
        self.dataset_made: tuple[int, DatasetJob] | None = None
        """The reflective dataset that GEPA got last, with the number of its entry."""
        # GEPA reads the attribute unconditionally.
        self.propose_new_texts: ProposalFn | None = self._propose_new_texts if self.offers("proposals") else None
        for one in fleets:
            self.journal.cancel_token.add_listener(one.interrupt)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End running work and close the connections; safe to call twice."""
        self._closing()

    @property
    def seed_candidate(self) -> Candidate:
        """The program's seed candidate."""
        return dict(self.discovery.program.seed_candidate)

    @property
    def tally(self) -> Tally:
        """The totals of evaluations."""
        return self.journal.spending[EVALUATE]

    @property
    def callbacks(self) -> list[TracePolicy]:
        """For `gepa.optimize(callbacks=[*adapter.callbacks, ...])`: only what GEPA reads is traced then."""
        return [self._trace_policy]

    def offers(self, capability: str) -> bool:
        """Whether any endpoint that has answered has this capability."""
        return capability in self.discovery.capabilities or self.fleet.offers(capability)

    # --- evaluation --------------------------------------------------------------------------------------------------

    def evaluate(self, batch: Sequence[Any], candidate: Candidate, capture_traces: bool = False) -> Batch:
        """Run a candidate on rows (`Row`, `ServerRow`, or any JSON values); scores are in the rows' order.

        Raises:
            Interrupted: an example got no result. RpcError, ClientError: the call is wrong or the program cannot run.
        """
        if not self.complete(candidate):
            return self.batches.build(batch, [{"status": "program_error"}] * len(batch))
        return self._evaluate([(candidate, batch)], trace=capture_traces)[0]

    def batch_evaluate(
        self, items: Sequence[tuple[Candidate, Sequence[Any]]], capture_traces: bool | None = None
    ) -> list[Batch]:
        """Run several candidates on their batches at once, within the servers' limits; results are in the items' order.

        A program with a `batch_evaluate` of its own (the capability) gets all of them in one call.

        Without `callbacks`, traces are captured unless `capture_traces` is False; with them, of what GEPA reads alone,
        unless it evaluates whole batches.
        """
        raced, self.raced = self.raced, {}
        if raced:
            return [raced[digest_of(candidate)] for candidate, _ in items]
        trace = self._trace_policy.wanted(capture_traces, whole_batches=self.discovery.limits.whole_batches)
        return self._evaluate(items, trace=trace, together="batch_evaluate" in self.discovery.capabilities)

    def score_rows(self, part: str, candidate: Candidate, rows: Sequence[Any]) -> Batch:
        """Evaluate rows that GEPA never sees, in a stream of their own beside the search."""
        evaluator = dataclasses.replace(self.evaluator, journal=self.journal.stream(part))
        item = EvaluationItem(candidate, [as_row(row) for row in rows], trace=False)
        [results] = self.wait_for(evaluator.evaluate([item]))
        return self.batches.build(item.rows, results)

    @property
    def slots(self) -> int:
        """Examples that all endpoints of the fleet take at once, those that rest included; at least 1."""
        slots, most = sum(endpoint.slots for endpoint in self.fleet.endpoints), self.fleet.concurrency.most
        return max(1, slots if most is None else min(slots, most))

    def request_example(self, candidate: Candidate, row: AnyRow) -> Callable[[], Awaitable[dict[str, Any]]]:
        """Return the function that gives a row's result, on the adapter's own event loop; the request is numbered now.

        Raises: as `evaluate`, the function too.
        """
        evaluate = self.evaluator.request([EvaluationItem(candidate, [row], trace=False)])

        async def result() -> dict[str, Any]:
            try:
                [[found]] = await evaluate()
            except ProgramFailed as error:
                self.failures.record("evaluate", error)
                raise
            return found

        return result

    def _evaluate(
        self, pairs: Sequence[tuple[Candidate, Sequence[Any]]], *, trace: bool, together: bool = False
    ) -> list[Batch]:
        items = [EvaluationItem(candidate, [as_row(row) for row in rows], trace) for candidate, rows in pairs]
        evaluate = self.evaluator.evaluate_together if together else self.evaluator.evaluate
        numbers = itertools.count(self.journal.next_number)  # GEPA asks from one thread
        try:
            if self.known is None:
                results = self.wait_for(evaluate(items))
                fresh: list[Results | None] = [None] * len(items)
                self.evaluated = [list(itertools.islice(numbers, len(item.rows))) for item in items]
            else:
                completed = self.wait_for(self.known.complete(items, evaluate))
                results, fresh = [each.results for each in completed], [each.fresh for each in completed]
                self.evaluated = [each.numbers for each in completed]
        except ProgramFailed as error:
            self.failures.record("evaluate", error)
            raise
        return [
            self.batches.build(item.rows, of_item, traced=numbers_ if trace else None, fresh=new)
            for item, of_item, numbers_, new in zip(items, results, self.evaluated, fresh, strict=True)
        ]

    # --- reflection --------------------------------------------------------------------------------------------------

    def expect_datasets(self, jobs: Sequence[DatasetJob]) -> None:
        """Announce the reflective datasets that are requested next, in this order: they are then made at once.

        Without effect if the program must make one after another.
        """
        self._expected_datasets = [self._with_added(job) for job in jobs] if self._datasets.overlap else []
        self._made_datasets = []

    def make_reflective_dataset(
        self, candidate: Candidate, eval_batch: Batch, components_to_update: Sequence[str]
    ) -> dict[str, list[dict[str, JsonValue]]]:
        """Return records for each component, made by the program from its traces.

        Trajectories that the server no longer has are traced once more, for reflection only: the scores stand.

        Raises:
            ProgramFailed: the program could not make them; also kept in `failures`, as GEPA swallows it.
            Interrupted: anything else. GEPA swallows every `Exception` here, so it is none.
        """
        try:
            if eval_batch.trajectories is None:
                raise BadResponse("the batch was evaluated without traces")
            job = DatasetJob(candidate, eval_batch.trajectories, list(components_to_update))
            made = self._made(self._with_added(job))
        except (RpcError, ClientError) as error:
            status: InterruptStatus = "paused" if isinstance(error, ConnectionLost) else "failed"
            raise Interrupted(status, f"make_reflective_dataset: {summary(error)}") from error
        if isinstance(made, ProgramFailed):
            self.failures.record("make_reflective_dataset", made)
            raise made
        return made

    def _with_added(self, job: DatasetJob) -> DatasetJob:
        """Return the job with, in place of `added_components`, each added component that the code uses."""
        return dataclasses.replace(job, components=self.commits.with_added(job.candidate, job.components))

    def _made(self, job: DatasetJob) -> Dataset | ProgramFailed:
        """Return what was made for this job, after making it with all that are expected after it."""
        if not self._made_datasets or self._made_datasets[0][0] != job:
            expected = self._expected_datasets[:1] == [job]
            jobs = self._expected_datasets if expected else [job]
            self._expected_datasets = [] if expected else self._expected_datasets
            first = self.journal.next_number
            found = self.wait_for(self._datasets.make(jobs))
            self._made_datasets = list(zip(jobs, range(first, first + len(jobs)), found, strict=True))
        made_for, number, made = self._made_datasets.pop(0)
        self.dataset_made = number, made_for
        return made

    def propose(self, jobs: Sequence[ProposalJob]) -> list[ProposedTexts | Exception]:
        """Return the program's new texts for each job, all requested at once; the exception for a job that failed.

        These exceptions are also kept in `failures`.

        Raises:
            Interrupted: anything else. GEPA swallows every `Exception` here, so it is none.
        """
        images, prices = self.offers("images"), self.evaluator.prices
        calls = [proposal_call(at, job, takes_images=images, prices=prices) for at, job in enumerate(jobs)]
        answers: list[ProposedTexts | Exception] = self.answers("propose_new_texts", calls)
        for answer in answers:
            if isinstance(answer, Exception):
                self.failures.record("reflection", answer)
        return answers

    def _propose_new_texts(
        self, candidate: dict[str, str], reflective_dataset: Records, components_to_update: list[str]
    ) -> dict[str, str]:
        """Make one proposal; raises the program's failure, for GEPA to log and try once more."""
        [texts] = self.propose([(candidate, reflective_dataset, components_to_update)])
        if isinstance(texts, Exception):
            raise texts
        return {name: text for name, text in texts.items() if text is not None}

    def answers(self, method: str, calls: Sequence[KeyedCall]) -> list[Any]:
        """Make calls of a method without whose answers the run cannot continue; return what `gather_recorded` does.

        Raises:
            Interrupted: there is no answer, or a call itself is wrong.
        """
        try:
            return self.wait_for(gather_recorded(self.journal, self.fleet.call, calls))
        except (RpcError, ClientError) as error:
            raise Interrupted("failed", f"{method}: {summary(error)}") from error

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the adapter's own event loop to its end; return its result or raise its exception."""
        try:
            return self._loop.run(work)
        except (Interrupted, KeyboardInterrupt):
            self._trace_policy.reset()  # the run is over, and GEPA announces no end
            raise

    def abandon(self, why: str) -> None:
        """End the calls in flight as lost, from any thread; call it after `journal.cancel_token.cancel`."""
        for fleet in filter(None, (self.fleet, self.scorers)):
            self._loop.run(fleet.cut(why))

    # --- state -------------------------------------------------------------------------------------------------------

    def get_adapter_state(self) -> dict[str, JsonValue]:
        """Return the state the program last gave, for GEPA's checkpoint; empty if it keeps none."""
        return self._datasets.state.checkpoint()

    def set_adapter_state(self, state: Mapping[str, JsonValue]) -> None:
        """Restore what `get_adapter_state` returned.

        A GEPA adapter (a program of whole batches) gets it at once, even if it is empty: GEPA restores at every start,
        and an adapter may reset itself then. Any other program gets its state with the next reflective dataset.
        """
        if STATE_KEY not in self.discovery.capabilities:
            if state:
                raise ValueError("the server keeps no adapter state, but there is one to restore")
            return
        self._datasets.state = AdapterState(state.get(STATE_KEY))
        if self.discovery.limits.whole_batches:
            self.wait_for(self._datasets.hand_over(state.get(STATE_KEY, {}), self.seed_candidate))

    # --- rows and the end of a run -----------------------------------------------------------------------------------

    def dataset(self, split: str, first_id: int = 0) -> RowLoader:
        """Return a loader over a split that the server holds; the rows stay there.

        Raises:
            RpcError: no such split, or the server holds none.
        """
        return RowLoader(self.wait_for(self.list_server_rows(split)), first_id)

    async def list_server_rows(self, split: str) -> list[AnyRow]:
        """Return every row of a split that the server holds."""
        return await list_server_rows(self.fleet.clients[0], split)

    def finalize(
        self, best_candidate: Candidate, best_score: float, run: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> str | None:
        """Report the run's outcome to the program (`run` as the contract's `RunInfo`); return its message, if any.

        Does nothing for a program without the capability `finalize`. `timeout_s`: seconds, repetitions included.

        Raises:
            TimeoutError: it took longer; the program may still get the report.
        """
        if not self.offers("finalize"):
            return None
        params = {"best_candidate": best_candidate, "best_score": best_score, "run": dict(run)}
        return self.wait_for(self._finalize(params, timeout_s))

    async def _finalize(self, params: Mapping[str, Any], timeout_s: float | None) -> str | None:
        stream = self.journal.stream(f"finalize-{params['run'].get('metric_calls')}")
        key = request_key("finalize", "report the best candidate to the program", params)
        call = Call(
            "finalize",
            params,
            lambda answer: Reply(validated(FinalizeResult, answer).message),
            about="finalize",
            needs="finalize",
        )

        async def report(call: Call[str | None], log: AttemptLog) -> Reply[str | None]:
            reply = await self.fleet.call(call, log)
            self.finalized_by = reply.endpoint
            return reply

        async with asyncio.timeout(timeout_s):
            [message] = await gather_recorded(stream, report, [KeyedCall(key, call)])
        if isinstance(message, Exception):
            raise message
        return str(message) if message is not None else None


async def _open(
    fleet: Fleet, addresses: list[Address], file: Path | None = None, *, allow_insecure: bool = False
) -> DiscoverResult:
    listed = read_endpoints_file(file, allow_insecure=allow_insecure) if file is not None else []
    if file is not None and not addresses + listed:  # there was one when the command began: it is being replaced
        raise ConnectionLost(f"the fleet file {file} names no server any more", sent=False)
    discovery = await fleet.open(addresses + listed)
    if file is not None:
        fleet.follow(file)
    return discovery


def _check_scorers(program: DiscoverResult, scorer: DiscoverResult, scorers: Fleet) -> None:
    """Raise `Refused` if the endpoint cannot score, or holds other rows under the program's names."""
    if not scorers.offers("scoring"):
        raise Refused(f"{scorer.program.name}, given to score, does not offer `score` (capability `scoring`)")
    for split, held in program.datasets.items():
        known = scorer.datasets.get(split)
        if known is not None and known.digest != held.digest:
            raise Refused(f"the endpoint given to score holds other rows as {split!r} than the program does")


def _close(loop: EventLoopThread, fleets: Sequence[Fleet]) -> None:
    for fleet in fleets:
        loop.run(fleet.aclose())
    loop.close()
