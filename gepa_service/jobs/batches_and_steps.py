"""Batches and steps in their process: each gets sandboxes, calls their servers, and reports what comes."""

import asyncio
import contextlib
import os
import shlex
import tempfile
import traceback
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from evolverpc_common.network_addresses import parse_networks
from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import ClientError, Interrupted, summary
from gepa_client.evolution.candidate_names import component_texts, manual_run_name
from gepa_client.evolution.manual_mutation import GRACE_S
from gepa_client.fleet.example_retries import ATTEMPTS
from gepa_client.fleet.fleet import Fleet
from gepa_client.fleet.slots import InFlightLimit
from gepa_client.gepa.rows import Row
from gepa_client.journal.entries import EVALUATE
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import request_key
from gepa_client.run.resolved_settings import endpoints
from gepa_client.settings.run_config import RunConfig
from gepa_client.transport.address import Address
from gepa_client.transport.calls import Call, Reply
from gepa_client.transport.responses import example_results, validated
from gepa_client.transport.rpc_client import RpcClient
from gepa_service.jobs.chat_names import ChatNames
from gepa_service.jobs.messages import (
    REQUESTS,
    Begin,
    Ended,
    EndWarm,
    Message,
    ProgramOrder,
    Reported,
    Spent,
    TaskDone,
    failed,
)
from gepa_service.jobs.process_main import LOG
from gepa_service.jobs.warm_sandboxes import NO_SANDBOX_S, ModelSpending, WarmSandboxes, WorkSandboxes
from gepa_service.jobs.work_session import ENDING, STOPPED, end_earlier_attempts, ended_by, saved_program, work_settings
from gepa_service.model.work import PROMPT, ProgramWork
from protocol import ApplyMutationResult, Candidate, EvaluateResult, JsonValue, Progress
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_components, added_to
from protocol.errors import MutationRejected, RpcError

Report = Callable[[Message], None]
Present = Callable[[Candidate], Candidate]
"""Returns a candidate with the texts of the work. Raises `SettingsError`: the program has no such components."""

RunTask = Callable[[str, dict[str, Any], Candidate], Awaitable[dict[str, Any]]]
"""Returns the result of a row, by its name, with a candidate, once there is room for it."""

FINALIZE_S = 120.0
KEPT_LOG = 20
"""Lines of the process that the reason of a failure repeats."""

COUNTED_S = 1.0
"""Seconds between two reports of what the work has cost."""


async def work_on_program(
    order: ProgramOrder, warm: WarmSandboxes, report: Report, print_line: Callable[[str], None]
) -> Ended:
    """Run the tasks of a batch, or make a step, and return how that ended. Raises `ENDING` of `ended_by`."""
    printed = deque[str](maxlen=KEPT_LOG)

    def log(text: str) -> None:
        printed.append(text)
        print_line(text)

    def settings_for(gateway: Mapping[str, Any]) -> RunConfig:
        flags = shlex.join([*_flags(order), *shlex.split(order.settings.get("server_args", ""))])
        return RunConfig.model_validate({**order.settings, "server_args": flags, **gateway})

    try:
        async with _counted(report) as spending:  # with the calls that are in flight as the sandboxes end
            with work_settings(order, settings_for) as (settings, front):
                if front is not None:
                    await end_earlier_attempts(order.id, settings)
                show, warm_up = (lambda line: log(line.text)), partial(_start_version, order.program)
                async with warm.taken(order.id, settings, show, spending, order.program.code, warm_up) as sandboxes:
                    return await _done(order, sandboxes, report, log)
    except Exception as error:
        error.add_note("\n".join(printed))
        raise


async def _start_version(program: ProgramWork, address: Address) -> None:
    """Start the program of a version with code of its own. Raises `ClientError`, `RpcError`."""
    if program.code is not None:
        async with RpcClient(address) as client:
            await client.discover()
            candidate = await version_on(client, program)
            await client.evaluate(candidate, [], call_id=client.new_call_id(), timeout_s=program.timeout_s)


def _flags(order: ProgramOrder) -> list[str]:
    """Return the flags of `evolverpc serve` that the work needs."""
    program = order.program
    changes_code = program.code is not None or (program.mutation or {}).get("kind") not in (None, PROMPT)
    limit = ["--example-timeout-s", f"{program.task_timeout_s:g}"]
    return [*limit, "--allow-mutations"] if changes_code else limit


async def _done(order: ProgramOrder, sandboxes: WorkSandboxes, report: Report, log: Callable[[str], None]) -> Ended:
    program = order.program
    names = ChatNames.of(await sandboxes.opened.program_config(endpoints(sandboxes.settings)[0].url))
    left = [(index, task) for index, task in enumerate(program.tasks) if index not in order.done]
    rows = [(index, names.row(task, program.model_id)) for index, task in left]

    def present(candidate: Candidate) -> Candidate:
        chat = names.texts(program.system_prompt, component_texts(candidate))
        return with_texts(candidate, {**program.candidate, **chat})

    if order.what == "rollouts":
        return await _rollouts(order, sandboxes, present, rows, report)
    try:
        async with asyncio.timeout(program.timeout_s) as limit:
            return await _step(order, sandboxes, present, rows, log)
    except TimeoutError:
        if not limit.expired():
            raise
        return failed("run", f"the step took longer than {program.timeout_s:g} s")


@contextlib.asynccontextmanager
async def _counted(report: Report) -> AsyncIterator[ModelSpending]:
    """Report what the block adds to the spending that it gets, each `COUNTED_S` and at its end."""
    spending = ModelSpending()

    def spent() -> None:
        report(Spent(usd=spending.usd, unpriced=spending.unpriced))

    async def count() -> None:
        while True:
            await asyncio.sleep(COUNTED_S)
            spent()

    reporting = asyncio.create_task(count())
    try:
        yield spending
    finally:
        reporting.cancel()
        spent()


@contextlib.asynccontextmanager
async def _runner(order: ProgramOrder, sandboxes: WorkSandboxes, bundles: Sequence[str]) -> AsyncIterator[RunTask]:
    """Open a fleet of the sandboxes for the block, as a run has it; yield what runs a task in any of them.

    A task is sent once a sandbox has a process for it. `bundles`: all commits that a server may lack.

    Raises:
        ClientError, RpcError: none can be used.
    """
    fleet = Fleet(
        max_attempts=ATTEMPTS,
        max_outage_s=NO_SANDBOX_S,
        allow_mixed_programs=True,  # all run the same commit
        example_timeout_s=order.program.task_timeout_s,
        concurrency=InFlightLimit(order.program.parallelism),
        bundles=lambda _commit: [(str(at), bundle) for at, bundle in enumerate(bundles)],
    )
    journal = Journal(order.id)  # names the calls; nothing is kept of them

    def parse(answer: JsonValue) -> Reply[list[dict[str, Any]]]:
        return Reply(example_results(EvaluateResult, answer, 1))

    async def run(name: str, row: dict[str, Any], candidate: Candidate) -> dict[str, Any]:
        batch = [Row(name, row).wire]
        params = {"candidate": candidate, "batch": batch, "capture_traces": order.program.traces}
        call = Call("evaluate", params, parse, about=f"task {name!r}", rows=[name])
        [request] = journal.ask([request_key(EVALUATE, call.about)])
        try:
            [result] = (await fleet.call(call, journal.attempts(request, EVALUATE))).value
        except Interrupted as ended:  # no run is interrupted here: the task has no result
            return _none("infra_error", ended.reason)
        except (ClientError, RpcError) as error:
            return _none("infra_error", summary(error))
        return result

    try:
        await fleet.open(endpoints(sandboxes.settings))
        assert sandboxes.settings.fleet is not None, "a session with a ready sandbox has a fleet file"  # noqa: S101
        fleet.follow(sandboxes.settings.fleet)
        yield run
    finally:
        await fleet.aclose()


async def _rollouts(
    order: ProgramOrder,
    sandboxes: WorkSandboxes,
    present: Present,
    rows: list[tuple[int, dict[str, Any]]],
    report: Report,
) -> Ended:
    """Run all tasks; those that are left when the time of the batch is over are cancelled."""
    left = {index for index, _ in rows}

    async def run(index: int, row: dict[str, Any]) -> None:
        report(TaskDone(index=index, result=await run_task(str(index), row, candidate)))
        left.remove(index)

    reason = None
    async with RpcClient(endpoints(sandboxes.settings)[0]) as client:
        await client.discover()
        # what is wrong with the code or the texts ends the batch
        candidate = present(await version_on(client, order.program))
    async with _runner(order, sandboxes, order.program.bundles) as run_task:
        try:
            async with asyncio.timeout(order.program.timeout_s), asyncio.TaskGroup() as group:
                for index, row in rows:
                    group.create_task(run(index, row))
        except TimeoutError:
            reason = "the time of the batch was over"
            for index in left:
                report(TaskDone(index=index, result=_none("cancelled", "the time of the batch is over")))
    return Ended(status="completed", reason=reason)


def _none(status: str, message: str) -> dict[str, Any]:
    """Return the result of a task without one of the program."""
    error = {"type": status, "message": message}
    return {"status": status, "score": None, "output": None, "error": error, "seconds": 0.0}


async def _step(
    order: ProgramOrder,
    sandboxes: WorkSandboxes,
    present: Present,
    rows: list[tuple[int, dict[str, Any]]],
    log: Callable[[str], None],
) -> Ended:
    """Make one mutation, and run the tasks after it, and before it if that is asked for."""
    program, address = order.program, endpoints(sandboxes.settings)[0]
    mutation = program.mutation or {}
    shown = ""

    def show(progress: Progress) -> None:
        nonlocal shown
        if progress.message and progress.message != shown:
            log(shown := progress.message)

    async with RpcClient(address) as client:
        discovery = await client.discover()
        before, bundles = present(await version_on(client, program)), list(program.bundles)
        made: dict[str, Any] = {}
        if mutation.get("kind") == PROMPT:
            after = with_texts(before, mutation["texts"])
        else:
            try:
                answer = await client.call(
                    "apply_mutation",
                    {"candidate": before, "mutation": mutation, "name": {"run": manual_run_name(), "number": 0}},
                    call_id=client.new_call_id(),
                    timeout_s=program.timeout_s + GRACE_S,
                    on_progress=show,
                )
            except MutationRejected as error:
                return failed("mutation", summary(error))
            changed = validated(ApplyMutationResult, answer)
            if changed.bundle is not None:
                bundles.append(changed.bundle)
            after = changed.candidate
            made = changed.model_dump(mode="json", include={"branch", "commit", "diff", "summary"})
        async with _runner(order, sandboxes, bundles) as run_task:
            run = partial(_tried, run_task, before if program.run_before else None, after)
            tried = await asyncio.gather(*(run(*each) for each in rows))
        saved, reason = await _program_json(sandboxes, client, after, [each["after"] for each in tried], log)
    result = {
        **made,
        "candidate": component_texts(after),
        "program": discovery.program.name,
        "program_json": saved,
        "base_commit": sandboxes.settings.ref,
        "bundles": bundles,
        "tried": tried,
    }
    return Ended(status="completed", reason=reason, result=result)


async def _tried(
    run_task: RunTask, before: Candidate | None, after: Candidate, index: int, row: dict[str, Any]
) -> dict[str, Any]:
    candidates = {"after": after} if before is None else {"before": before, "after": after}
    results = await asyncio.gather(*(run_task(str(index), row, each) for each in candidates.values()))
    return dict(zip(candidates, results, strict=True))


async def _program_json(
    sandboxes: WorkSandboxes,
    client: RpcClient,
    candidate: Candidate,
    results: list[dict[str, Any]],
    log: Callable[[str], None],
) -> tuple[dict[str, Any] | None, str | None]:
    """Have the program save the candidate, if it can.

    Return what it saved, its `program.json` or first JSON object, and why it could not.
    """
    if not client.offers("finalize"):
        return None, None
    scores = [each["score"] or 0.0 for each in results]
    best = sum(scores) / len(scores) if scores else 0.0
    run = {"id": uuid.uuid4().hex, "metric_calls": len(results), "candidates": 2, "seed_score": best}
    try:
        params = {"best_candidate": candidate, "best_score": best, "run": run}
        await client.call("finalize", params, timeout_s=FINALIZE_S)
    except (ClientError, RpcError) as error:
        return None, f"the program did not save the candidate: {summary(error)}"
    with tempfile.TemporaryDirectory(prefix="gepa-artifacts-") as name:
        for line in await sandboxes.opened.collect_artifacts(client.address.url, Path(name)):
            log(line.text)
        return saved_program(Path(name)), None


async def version_on(client: RpcClient, program: ProgramWork) -> Candidate:
    """Bring the code of the work's version, whose commits no repository has, to a discovered server.

    Return the candidate with that code, and with the texts that mutations of it added.

    Raises:
        RpcError, ClientError: the server refuses the code or does not answer.
    """
    discovery = client.discovery
    assert discovery is not None, "the server was discovered"  # noqa: S101
    seed = discovery.program.seed_candidate
    if program.bundles:
        await client.call("import_commits", {"bundles": program.bundles})
    if program.code is None:
        return seed
    added = {name: text for name, text in program.candidate.items() if name not in component_texts(seed)}
    return {**seed, GIT_BRANCH: program.code, ADDED_COMPONENTS: added_components(added)}


def with_texts(candidate: Candidate, texts: Mapping[str, str]) -> Candidate:
    """Return the candidate with other texts, those that code mutations added among them.

    Raises:
        SettingsError: it has no component of a name.
    """
    known = component_texts(candidate)
    if unknown := texts.keys() - known.keys():
        raise SettingsError(f"the program has no component {', '.join(sorted(unknown))}; it has {', '.join(known)}")
    own = {name: text for name, text in texts.items() if name in candidate}
    added = {**added_to(candidate), **{name: text for name, text in texts.items() if name not in candidate}}
    found = {**candidate, **own}
    return {**found, ADDED_COMPONENTS: added_components(added)} if ADDED_COMPONENTS in candidate else found


class ProcessWorks:
    """Carries out the orders of lines, in one event loop. `report`: takes lines of JSON."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._warm: WarmSandboxes | None = None
        self._works: dict[str, asyncio.Task[None]] = {}

    def take(self, line: bytes) -> None:
        """Begin or stop a work, or end the sandboxes that wait, as a line requests."""
        request = REQUESTS.validate_json(line)
        if isinstance(request, Begin):
            assert isinstance(request.order, ProgramOrder), "an optimization has a process of its own"  # noqa: S101
            name = request.order.folder.name
            task = self._works[name] = asyncio.create_task(self._work(request.order), name=name)
            task.add_done_callback(self._ended_task)
        elif isinstance(request, EndWarm):
            if self._warm is not None:
                self._warm.end()
        elif (work := self._works.get(request.work)) is not None and not work.cancelling():
            work.cancel()

    def _ended_task(self, task: asyncio.Task[None]) -> None:
        del self._works[task.get_name()]
        if task.cancelled():  # before it had begun
            self._report(Reported(work=task.get_name(), message=STOPPED).model_dump_json())

    async def close(self) -> None:
        """Stop all works, and end all sandboxes."""
        for work in self._works.values():
            if not work.cancelling():
                work.cancel()
        await asyncio.gather(*self._works.values(), return_exceptions=True)
        if self._warm is not None:
            await self._warm.close()

    async def _work(self, order: ProgramOrder) -> None:
        def report(message: Message) -> None:
            self._report(Reported(work=order.folder.name, message=message).model_dump_json())

        if self._warm is None:
            os.environ.update(order.secrets)
            networks = parse_networks(order.allow_networks)
            self._warm = WarmSandboxes(networks, lambda warm: self._report(warm.model_dump_json()), order.warm_mb)
        try:
            with (order.folder / LOG).open("a", encoding="utf-8") as log:
                ended = await self._ended(order, self._warm, report, log)
        except OSError as error:  # of the log
            ended = ended_by(error)
        report(ended)

    async def _ended(
        self, order: ProgramOrder, warm: WarmSandboxes, report: Callable[[Message], None], log: TextIO
    ) -> Ended:
        try:
            return await work_on_program(order, warm, report, lambda text: print(text, file=log, flush=True))
        except asyncio.CancelledError:
            return STOPPED
        except ENDING as error:
            return ended_by(error)
        except Exception as error:  # noqa: BLE001  it may not end the other works; another attempt continues
            traceback.print_exc(file=log)
            return Ended(status="interrupted", reason=f"an error of the service: {type(error).__name__}")
