"""A batch or a step in its process: it starts sandboxes, calls their servers, and reports what comes."""

import asyncio
import contextlib
import json
import sys
import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import ClientError, summary
from gepa_client.evolution.manual_mutation import mutate_once
from gepa_client.fleet.endpoints_file import read_endpoints_file
from gepa_client.fleet.example_retries import ATTEMPTS, ExampleRetries, HostEvidence, pause_s
from gepa_client.gepa.row_loaders import Row
from gepa_client.run.resolved_settings import endpoints
from gepa_client.sandboxing.session import SandboxSession
from gepa_client.settings.run_config import RunConfig
from gepa_client.transport.address import Address
from gepa_client.transport.rpc_client import RpcClient
from gepa_service.jobs.job_sandboxes import started_session
from gepa_service.jobs.work_order import Ended, Message, ProgramOrder, Spent, TaskDone
from gepa_service.model.work import PROMPT
from protocol import ApplyMutationResult, Candidate
from protocol.errors import MutationRejected, RpcError

Report = Callable[[Message], None]

GRACE_S = 15.0
"""Seconds by which the deadline of a call is later than the time of its task, which the server keeps itself."""

FINALIZE_S = 120.0
KEPT_LOG = 20
"""Lines of the process that the reason of a failure repeats."""

COUNTED_S = 1.0
"""Seconds between two reports of what the work has cost."""

T = TypeVar("T")


def work_on_program(order: ProgramOrder, report: Report) -> Ended:
    """Run the tasks of a batch, or make a step, and return how that ended. Raises what `carry_out` reports."""
    printed = deque[str](maxlen=KEPT_LOG)

    def log(text: str) -> None:
        printed.append(text)
        print(text, file=sys.stderr, flush=True)

    def settings(gateway: Mapping[str, Any]) -> RunConfig:
        return RunConfig.model_validate({**order.settings, **gateway})

    session: SandboxSession | None = None
    try:
        with started_session(order, settings, lambda line: log(line.text)) as (session, _):
            return _done(order, session, report, log)
    except Exception as error:
        error.add_note("\n".join(printed))
        raise
    finally:
        if session is not None:
            report(_spent(session))  # with the calls that were in flight as the sandboxes ended


def _done(order: ProgramOrder, session: SandboxSession, report: Report, log: Callable[[str], None]) -> Ended:
    fleet = session.settings.fleet
    assert fleet is not None, "a session with a ready sandbox has a fleet file"  # noqa: S101
    if order.what == "rollouts":
        return asyncio.run(_counted(_rollouts(order, fleet, report), session, report))
    address = endpoints(session.settings)[0]
    result = asyncio.run(_counted(_step(order, fleet, address, log), session, report))
    made = {**result, "program_json": _program_json(session, address, result["finalized"])}
    return Ended(status="completed", result=made)


def _spent(session: SandboxSession) -> Spent:
    return Spent(usd=session.models_usd, unpriced=session.models_unpriced)


async def _counted(work: Coroutine[Any, Any, T], session: SandboxSession, report: Report) -> T:
    """Do the work and report what it has cost each `COUNTED_S`."""

    async def count() -> None:
        while True:
            await asyncio.sleep(COUNTED_S)
            report(_spent(session))

    reporting = asyncio.create_task(count())
    try:
        return await work
    finally:
        reporting.cancel()


class _Tasks:
    """Runs tasks of an order, each in whichever sandbox is the least busy."""

    def __init__(self, order: ProgramOrder, fleet: Path) -> None:
        self._order, self._fleet = order, fleet
        self._clients: dict[str, RpcClient] = {}
        self._open = contextlib.AsyncExitStack()
        self._busy: dict[str, int] = {}
        self._evidence = HostEvidence()
        self._gate = asyncio.Semaphore(order.program.parallelism)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def result(self, name: str, task: dict[str, Any], candidate: Candidate | None) -> dict[str, Any]:
        """Return the result of a task, once there is room for it. `candidate`: None for the seed."""
        result: dict[str, Any] = {}
        retries = ExampleRetries(self._evidence, [name])
        async with self._gate:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    url, client = await self._least_busy()
                    retries.sending(url)
                    with self._using(url):
                        [result] = retries.judge([await self._evaluated(client, task, candidate)])
                    if not retries.open:
                        break
                except TimeoutError:
                    return _none("timeout", f"no result within {self._order.program.task_timeout_s:g} s")
                except (ClientError, RpcError) as error:
                    result = _none("infra_error", summary(error))
                if attempt < ATTEMPTS:
                    await asyncio.sleep(pause_s(attempt, retries))
        return result

    @contextlib.contextmanager
    def _using(self, url: str) -> Iterator[None]:
        self._busy[url] += 1
        try:
            yield
        finally:
            self._busy[url] -= 1

    async def _evaluated(self, client: RpcClient, task: dict[str, Any], candidate: Candidate | None) -> dict[str, Any]:
        discovery = client.discovery or await client.discover()
        limit = self._order.program.task_timeout_s
        async with asyncio.timeout(limit + GRACE_S):
            answer = await client.evaluate(
                discovery.program.seed_candidate if candidate is None else candidate,
                [Row("0", task).wire],
                capture_traces=self._order.program.traces,
                call_id=uuid.uuid4().hex if client.offers("idempotency") else None,
                timeout_s=limit + GRACE_S,
            )
        found: dict[str, Any] = answer["results"][0]
        return found

    async def _least_busy(self) -> tuple[str, RpcClient]:
        """Return a client of the sandboxes that are there now."""
        listed = await asyncio.to_thread(read_endpoints_file, self._fleet)
        for address in listed:
            if address.url not in self._clients:
                client = RpcClient(address, example_timeout_s=self._order.program.task_timeout_s)
                self._clients[address.url] = client
                self._busy[address.url] = 0
                await self._open.enter_async_context(client)
        if not listed:
            raise ClientError("no sandbox is there at present")
        url = min((address.url for address in listed), key=lambda each: self._busy[each])
        return url, self._clients[url]


async def _rollouts(order: ProgramOrder, fleet: Path, report: Report) -> Ended:
    """Run all tasks; those that are left when the time of the batch is over are cancelled."""
    left = dict(order.tasks)

    async def run(index: int, task: dict[str, Any]) -> None:
        report(TaskDone(index=index, result=await tasks.result(str(index), task, order.program.candidate)))
        del left[index]

    reason = None
    async with _Tasks(order, fleet) as tasks:
        try:
            async with asyncio.timeout(order.program.timeout_s), asyncio.TaskGroup() as group:
                for index, task in order.tasks:
                    group.create_task(run(index, task))
        except TimeoutError:
            reason = "the time of the batch was over"
            for index in left:
                report(TaskDone(index=index, result=_none("cancelled", "the time of the batch is over")))
    return Ended(status="completed", reason=reason)


def _none(status: str, message: str) -> dict[str, Any]:
    """Return the result of a task without one of the program."""
    error = {"type": status, "message": message}
    return {"status": status, "score": None, "output": None, "error": error, "seconds": 0.0}


async def _step(order: ProgramOrder, fleet: Path, address: Address, log: Callable[[str], None]) -> dict[str, Any]:
    """Make one mutation, and run the tasks before and after."""
    rows = [Row(str(index), task) for index, task in order.tasks]
    mutation = order.program.mutation or {}
    async with asyncio.timeout(order.program.timeout_s), RpcClient(address) as client:
        discovery = await client.discover()
        before = order.program.candidate or discovery.program.seed_candidate
        found: dict[str, Any] = {"made": True, "tried": []}
        if mutation.get("kind") == PROMPT:
            after = {**before, **mutation["texts"]}
            found["tried"] = await _compared(order, fleet, before, after)
        else:
            if "mutations" not in discovery.capabilities:
                raise SettingsError("the program's code cannot be changed: its server offers no mutations")
            try:
                step = await mutate_once(
                    client,
                    before,
                    mutation,
                    rows,
                    timeout_s=order.program.timeout_s,
                    report=log,
                    on_made=lambda _: None,
                    traces=order.program.traces,
                )
            except MutationRejected as error:
                refused = {"made": False, "stage": str(error.details.get("stage", "")), "message": summary(error)}
                return {**found, **refused, "candidate": before, "finalized": None}
            after = step.made.candidate
            found |= _made(step.made)
            found["tried"] = [
                {"before": each.before, "after": each.after, "task": each.row.data} for each in step.tried
            ]
        finalized = await _finalized(client, after, found["tried"])
    return {**found, "candidate": after, "finalized": finalized}


def _made(made: ApplyMutationResult) -> dict[str, Any]:
    return made.model_dump(mode="json", include={"branch", "commit", "diff", "summary", "bundle"})


async def _compared(order: ProgramOrder, fleet: Path, before: Candidate, after: Candidate) -> list[dict[str, Any]]:
    async with _Tasks(order, fleet) as tasks:

        async def run(index: int, task: dict[str, Any]) -> dict[str, Any]:
            one, two = await asyncio.gather(*(tasks.result(str(index), task, each) for each in (before, after)))
            return {"task": task, "before": one, "after": two}

        return await asyncio.gather(*(run(*each) for each in order.tasks))


async def _finalized(client: RpcClient, candidate: Candidate, tried: list[dict[str, Any]]) -> str | None:
    """Have the program write the candidate to its artifacts, if it can; return its message."""
    if not client.offers("finalize"):
        return None
    scores = [each["after"]["score"] or 0.0 for each in tried]
    best = sum(scores) / len(scores) if scores else 0.0
    run = {"id": uuid.uuid4().hex, "metric_calls": 2 * len(tried), "candidates": 2, "seed_score": best}
    try:
        params = {"best_candidate": candidate, "best_score": best, "run": run}
        answer = await client.call("finalize", params, timeout_s=FINALIZE_S)
    except (ClientError, RpcError) as error:
        return summary(error)
    return str(answer.get("message") or "") if isinstance(answer, Mapping) else None


def _program_json(session: SandboxSession, address: Address, finalized: str | None) -> dict[str, Any] | None:
    """Return the first JSON object among the files that the program wrote for the candidate."""
    if finalized is None:
        return None
    with tempfile.TemporaryDirectory(prefix="gepa-artifacts-") as folder:
        session.collect_artifacts(address.url, Path(folder) / "artifacts")
        for file in sorted(Path(folder).rglob("*.json")):
            try:
                read = json.loads(file.read_bytes())
            except (ValueError, OSError, RecursionError):
                continue
            if isinstance(read, dict):
                return read
    return None
