"""A batch or a step: it gets sandboxes, calls their servers, and reports what comes."""

import asyncio
import contextlib
import json
import math
import shlex
import tempfile
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

from gepa_client.errors import ClientError, summary
from gepa_client.evolution.manual_mutation import GRACE_S
from gepa_client.evolution.names import component_texts, manual_run_name
from gepa_client.fleet.endpoints_file import read_endpoints_file
from gepa_client.fleet.example_retries import ATTEMPTS, ExampleRetries, HostEvidence, pause_s
from gepa_client.gepa.row_loaders import Row
from gepa_client.run.resolved_settings import endpoints
from gepa_client.settings.run_config import RunConfig
from gepa_client.transport.address import Address
from gepa_client.transport.responses import validated
from gepa_client.transport.rpc_client import RpcClient
from gepa_service.jobs.chat_names import ChatNames
from gepa_service.jobs.job_sandboxes import end_earlier_attempts, work_settings
from gepa_service.jobs.version_code import VersionCode, with_texts
from gepa_service.jobs.warm_sandboxes import NO_SANDBOX_S, ModelSpending, WarmSandboxes, WorkSandboxes
from gepa_service.jobs.work_order import Ended, Message, ProgramOrder, Spent, TaskDone, failed
from gepa_service.model.program_version import LARGEST_ARTIFACT, PROGRAM_JSON
from gepa_service.model.work import PROMPT, ProgramWork
from protocol import ApplyMutationResult, Candidate, Progress
from protocol.errors import MutationRejected, Overloaded, RpcError

Report = Callable[[Message], None]

FINALIZE_S = 120.0
KEPT_LOG = 20
"""Lines of the process that the reason of a failure repeats."""

COUNTED_S = 1.0
"""Seconds between two reports of what the work has cost."""

LOOK_S = 0.2
"""Seconds between two looks at which sandboxes are there."""


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
            candidate = await VersionCode(program, lambda candidate: candidate).on(client)
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
    rows = [(index, names.row(task, program.model_id)) for index, task in order.left]

    def present(candidate: Candidate) -> Candidate:
        chat = names.texts(program.system_prompt, component_texts(candidate))
        return with_texts(candidate, {**program.candidate, **chat})

    code = VersionCode(program, present)
    if order.what == "rollouts":
        return await _rollouts(order, sandboxes, code, rows, report)
    try:
        async with asyncio.timeout(program.timeout_s):
            return await _step(order, sandboxes, code, rows, log)
    except TimeoutError:
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


class _Tasks:
    """Runs tasks of an order in all sandboxes, each of which has its share of those that run at the same time.

    A task is sent once its sandbox has a process for it, so that its time is not spent by waiting.
    """

    def __init__(self, order: ProgramOrder, sandboxes: WorkSandboxes, code: VersionCode) -> None:
        self._order, self._code = order, code
        fleet = sandboxes.settings.fleet
        assert fleet is not None, "a session with a ready sandbox has a fleet file"  # noqa: S101
        self._fleet = fleet
        self._share = math.ceil(order.program.parallelism / sandboxes.settings.sandboxes)
        self._clients: dict[str, tuple[RpcClient, Candidate]] = {}
        self._listed: list[str] = []
        self._seen = time.monotonic()
        self._running: dict[str, int] = {}
        self._evidence = HostEvidence()
        self._gate = asyncio.Semaphore(order.program.parallelism)
        self._room = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        for known in self._clients.values():
            await known[0].aclose()

    async def result(self, name: str, row: dict[str, Any], candidate: Candidate | None = None) -> dict[str, Any]:
        """Return the result of a row, once there is room for it. `candidate`: None for what the work begins with."""
        result: dict[str, Any] = {}
        retries = ExampleRetries(self._evidence, [name])
        async with self._gate:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    async with self._sandbox() as url:
                        client, present = self._clients[url]
                        retries.sending(url)
                        [result] = retries.judge([await self._evaluated(client, row, candidate or present)])
                    if not retries.open:
                        break
                except (ClientError, RpcError) as error:
                    result = _none("infra_error", summary(error))
                if attempt < ATTEMPTS:
                    await asyncio.sleep(pause_s(attempt, retries))
        return result

    async def _evaluated(self, client: RpcClient, row: dict[str, Any], candidate: Candidate) -> dict[str, Any]:
        answer = await client.evaluate(
            candidate,
            [Row("0", row).wire],
            capture_traces=self._order.program.traces,
            call_id=client.new_call_id(),
            timeout_s=client.evaluation_timeout_s(1),
        )
        found: dict[str, Any] = answer["results"][0]
        return found

    @contextlib.asynccontextmanager
    async def _sandbox(self) -> AsyncIterator[str]:
        """Hold a place in the sandbox that is the least busy, for the block."""
        async with self._room:
            await self._room.wait_for(lambda: self._free() or self._following.done() or self._is_without())
            if self._following.done():
                self._following.result()
            if not (free := self._free()):
                raise ClientError(f"no sandbox was there for {NO_SANDBOX_S:g} s")
            url = min(free, key=lambda each: self._running[each])
            self._running[url] += 1
        try:
            yield url
        finally:
            self._running[url] -= 1
            async with self._room:
                self._room.notify()

    def _free(self) -> list[str]:
        def most(url: str) -> int:
            discovery = self._clients[url][0].discovery
            return self._share if discovery is None else min(self._share, discovery.limits.max_concurrency)

        return [url for url in self._listed if self._running[url] < most(url)]

    def _is_without(self) -> bool:
        return not self._listed and time.monotonic() - self._seen > NO_SANDBOX_S

    async def _follow(self) -> None:
        """Keep clients of the sandboxes that are there."""
        try:
            while True:
                addresses = await asyncio.to_thread(read_endpoints_file, self._fleet)
                for address in addresses:
                    if address.url not in self._clients:
                        await self._join(address)
                self._listed = [each.url for each in addresses if each.url in self._clients]
                if self._listed:
                    self._seen = time.monotonic()
                async with self._room:
                    self._room.notify_all()
                await asyncio.sleep(LOOK_S)
        finally:
            async with self._room:
                self._room.notify_all()

    async def _join(self, address: Address) -> None:
        client = RpcClient(address, example_timeout_s=self._order.program.task_timeout_s)
        async with contextlib.AsyncExitStack() as opened:
            await opened.enter_async_context(client)
            try:
                await client.discover()
                self._clients[address.url] = client, await self._code.on(client)
            except (ClientError, Overloaded):
                return  # it has ended, or is tried again
            self._running[address.url] = 0
            opened.pop_all()


async def _rollouts(
    order: ProgramOrder,
    sandboxes: WorkSandboxes,
    code: VersionCode,
    rows: list[tuple[int, dict[str, Any]]],
    report: Report,
) -> Ended:
    """Run all tasks; those that are left when the time of the batch is over are cancelled."""
    left = {index for index, _ in rows}

    async def run(index: int, row: dict[str, Any]) -> None:
        report(TaskDone(index=index, result=await tasks.result(str(index), row)))
        left.remove(index)

    reason = None
    async with RpcClient(endpoints(sandboxes.settings)[0]) as client:
        await client.discover()
        await code.on(client)  # what is wrong with the code or the texts ends the batch
    async with _Tasks(order, sandboxes, code) as tasks:
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
    code: VersionCode,
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
        before = await code.on(client)
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
            code.add(changed)
            after = changed.candidate
            made = changed.model_dump(mode="json", include={"branch", "commit", "diff", "summary"})
        async with _Tasks(order, sandboxes, code) as tasks:
            run = partial(_tried, tasks, before if program.run_before else None, after)
            tried = await asyncio.gather(*(run(*each) for each in rows))
        saved, reason = await _program_json(sandboxes, client, after, [each["after"] for each in tried], log)
    result = {
        **made,
        "candidate": component_texts(after),
        "program": discovery.program.name,
        "program_json": saved,
        "base_commit": sandboxes.settings.ref,
        "bundles": code.bundles,
        "tried": tried,
    }
    return Ended(status="completed", reason=reason, result=result)


async def _tried(
    tasks: _Tasks, before: Candidate | None, after: Candidate, index: int, row: dict[str, Any]
) -> dict[str, Any]:
    candidates = {"after": after} if before is None else {"before": before, "after": after}
    results = await asyncio.gather(*(tasks.result(str(index), row, each) for each in candidates.values()))
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
        return _first_object(Path(name)), None


def _first_object(folder: Path) -> dict[str, Any] | None:
    for file in sorted(folder.rglob("*.json"), key=lambda file: (file.name != PROGRAM_JSON, file)):
        with contextlib.suppress(ValueError, OSError, RecursionError):
            if file.stat().st_size <= LARGEST_ARTIFACT and isinstance(read := json.loads(file.read_bytes()), dict):
                return read
    return None
