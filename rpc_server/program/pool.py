"""The program's processes: who runs what, for how long, and what happens when one hangs or dies."""

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from protocol import Candidate, CandidateItem, Example, Limits, ProgramInfo
from protocol.errors import ProgramFailed, RpcError
from rpc_server.program.child_process import Exit
from rpc_server.program.launch import Launcher
from rpc_server.program.process import Heartbeat
from rpc_server.program.process_factory import TRIES, Started, Supply
from rpc_server.program.program import ResultDict
from rpc_server.program.scheduler import Slot, Ticket, Turns
from rpc_server.program.work import Examples, ExamplesCall, OtherCall, Work

GRACE_S = 0.75
"""How long after its deadline a process may still end an example by itself."""

_EXTRA_PROCESSES = 8  # for examples that must run alone, beside those that run as ever

_MAX_HELD = 0.1
"""The share of a limit for which a process may fail to answer before the work in it counts as held up."""

_SOON_S = 0.001

_ALONE = "while running alone"
_RESPONSIVE = "while its process was responsive"


@dataclass(frozen=True)
class PoolPlan:
    """What does not change while the pool lives.

    `limits`: of all processes together. `size`: processes. `single`: never more than `size`, whose one process must be
    kept as long as it lives, for what it remembers. `max_line_bytes`: a longer request cannot be sent.
    `fresh_after_deadline`: a process that ended an example late is not used again, for what that left behind in it.
    """

    info: ProgramInfo
    capabilities: frozenset[str]
    limits: Limits
    size: int
    single: bool
    splits: Mapping[str, int]
    cancels: bool
    fresh_after_deadline: bool
    max_line_bytes: int | None
    start_timeout_s: float
    call_timeout_s: float


class Pool:
    """A `Program` over processes of one launcher; see `rpc_server.program.program.Program`.

    Requests wait for their turn (see `Turns`). A request's deadline counts from when it is sent to a process. A
    process that does not keep it is killed, and what else ran in it runs again, uncounted.

    A request past its deadline is timed out only if its process has run nothing else, or answered heartbeats for all
    but a tenth of its limit, which it is given back (see `Heartbeat`). Any other may have been held up by its
    neighbours: it runs again alone in a fresh process.

    What ran in a process that died runs again alone in a fresh one, too; what kills that is to blame. When all
    processes died at once, with the one they were forked from, what ran in any of them runs again while nothing else
    does.
    """

    def __init__(self, launcher: Launcher, first: Started, plan: PoolPlan) -> None:
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._turns = Turns()
        self._slots: list[Slot] = []
        self._running = 0
        self._made = 0
        self._state: Any = None
        self._supply = Supply(
            launcher,
            start_timeout_s=plan.start_timeout_s,
            on_started=self._arrived,
            on_failed=self._not_to_be_had,
            on_retry=self._fill,
        )
        self._closed = False
        self._add(first)
        self._fill()

    @property
    def info(self) -> ProgramInfo:
        """What the program is."""
        return self._plan.info

    @property
    def splits(self) -> Mapping[str, int]:
        """The rows it holds itself."""
        return self._plan.splits

    @property
    def capabilities(self) -> frozenset[str]:
        """What the program itself offers."""
        return self._plan.capabilities

    @property
    def limits(self) -> Limits:
        """What it bears, in all processes together."""
        return self._plan.limits

    @property
    def ready(self) -> bool:
        """False once no process could be had twice in a row, until one is."""
        return not self._closed and (bool(self._slots) or self._supply.failures < TRIES)

    async def evaluate(
        self,
        candidate: Candidate,
        batch: Sequence[Example],
        *,
        capture_traces: bool,
        items: Sequence[CandidateItem] | None = None,
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """See `Program.evaluate`."""
        rows = _rows(batch)
        several = {} if items is None else {"items": [item.model_dump() for item in items]}

        def params(positions: Sequence[int]) -> dict[str, Any]:
            chosen = [rows[position] for position in positions]
            return {"candidate": candidate, "batch": chosen, "capture_traces": capture_traces, **several}

        call = self._examples_call("evaluate", len(batch), params, on_result)
        await self._run_examples(call, whole=items is not None)

    async def score(
        self,
        batch: Sequence[Example],
        results: Sequence[ResultDict],
        *,
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """See `Program.score`."""
        rows = _rows(batch)

        def params(positions: Sequence[int]) -> dict[str, Any]:
            chosen = [rows[position] for position in positions]
            return {"batch": chosen, "results": [results[position] for position in positions]}

        await self._run_examples(self._examples_call("score", len(batch), params, on_result), whole=False)

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """See `Program.call`."""
        call = OtherCall(method, params, limit_s=self._call_limit(params))
        await self._run([call], call.done)
        return call.done.result()

    async def close(self) -> None:
        """End everything that runs; what waits is refused."""
        self._closed = True
        self._refuse_all(_closing())
        for slot in tuple(self._slots):
            self._retire(slot)
        await self._supply.close()

    def _call_limit(self, params: dict[str, Any]) -> float:
        """Room for each of the call's examples, as reflecting on them may take as long as running them."""
        rows = (params.get("eval_batch") or {}).get("batch") or ()
        return max(self._plan.call_timeout_s, (self._plan.limits.example_timeout_s or 0) * len(rows))

    def _examples_call(
        self,
        method: str,
        size: int,
        params: Callable[[Sequence[int]], dict[str, Any]],
        on_result: Callable[[int, ResultDict], None],
    ) -> ExamplesCall:
        most = self._plan.limits.max_result_bytes
        assert most is not None, "`limits.within` sets it"  # noqa: S101
        return ExamplesCall(method, size, params, on_result=on_result, max_result_bytes=most)

    async def _run_examples(self, call: ExamplesCall, *, whole: bool) -> None:
        if not call.size:
            return
        limit_s = self._plan.limits.example_timeout_s
        if whole or self._plan.limits.whole_batches:
            whole_s = None if limit_s is None else limit_s * call.size
            pieces = [Examples(call, range(call.size), limit_s=whole_s)]
        else:
            pieces = [Examples(call, (position,), limit_s=limit_s) for position in range(call.size)]
        await self._run(pieces, call.done)

    # -- from a call to a process ------------------------------------------------------------------------------------

    async def _run(self, pieces: Sequence[Work], done: "asyncio.Future[Any]") -> None:
        if self._closed:
            raise _closing()
        if not self.ready and self._supply.last_failure is not None:
            raise copy(self._supply.last_failure)
        tickets = [self._ticket(work) for work in pieces]
        self._turns.join(tickets)
        self._dispatch()
        try:
            await done
        finally:
            if done.cancelled() or done.exception() is not None:
                self._give_up(tickets)

    def _ticket(self, work: Work) -> Ticket:
        self._made += 1
        return Ticket(work, f"p{self._made}")

    def _dispatch(self) -> None:
        while self._running < self._plan.limits.max_concurrency:
            if self._turns.any_apart:
                slot = None if self._running else self._slot_for_suspect()
                if slot is None:
                    break
                self._send(slot, self._turns.next_apart())
                continue
            if any(ticket.apart for slot in self._slots for ticket in slot.running):
                break
            if self._turns.any_alone:
                slot = self._slot_for_suspect()
                if slot is not None:
                    self._send(slot, self._turns.next_alone())
                    continue
                if self._plan.single:
                    break  # its one process must fall idle first
            slot = self._slot_with_room()
            if slot is None:
                break
            ticket = self._turns.next()
            if ticket is None:
                break
            self._send(slot, ticket)
        self._fill()

    def _slot_for_suspect(self) -> Slot | None:
        for slot in self._slots:
            if slot.process.alive and not slot.running and not slot.ghosts and (self._plan.single or not slot.used):
                return slot
        return None

    def _slot_with_room(self) -> Slot | None:
        best: Slot | None = None
        for slot in self._slots:
            free = slot.process.alive and not slot.exclusive and len(slot.running) < slot.room
            if free and (best is None or len(slot.running) < len(best.running)):
                best = slot
        return best

    def _send(self, slot: Slot, ticket: Ticket) -> None:
        ticket.sent = self._loop.time()
        ticket.log_mark = slot.process.log.total
        ticket.late = False
        ticket.isolated = self._is_serial(slot) or (ticket.alone and not slot.used)
        method, params = ticket.work.request()
        self._add_meta(slot, ticket, method, params)
        try:
            on_answer = functools.partial(self._answered, slot, ticket)
            slot.process.request(method, params, on_answer, max_bytes=self._plan.max_line_bytes)
        except RpcError as error:  # nested too deep, or too long with rows and trajectories filled in
            ticket.work.refused(error)
            return
        self._running += 1
        slot.running.add(ticket)
        slot.used = True
        slot.exclusive = ticket.alone
        ticket.slot = slot
        if ticket.work.limit_s is None:
            return
        if slot.heartbeat is not None:
            slot.heartbeat.start()
            ticket.held_mark = slot.heartbeat.held_s
        ticket.timer = self._loop.call_later(ticket.work.limit_s, self._over, slot, ticket)

    def _add_meta(self, slot: Slot, ticket: Ticket, method: str, params: dict[str, Any]) -> None:
        meta: dict[str, Any] = {"call_id": ticket.call_id} if self._plan.cancels else {}
        if slot.restore is not None:
            if method == "make_reflective_dataset" and params.get("adapter_state") is None:
                params["adapter_state"] = slot.restore
            elif method == "evaluate":
                meta["adapter_state"] = slot.restore
            slot.restore = None
        if meta:
            params["_meta"] = meta

    # -- from a process to a call ------------------------------------------------------------------------------------

    def _answered(self, slot: Slot, ticket: Ticket, message: dict[str, Any]) -> None:
        if ticket.slot is not slot:
            return  # the last words of a process that was given up: the example is under way elsewhere
        self._release(slot, ticket)
        result = message.get("result")
        if isinstance(result, dict) and "adapter_state" in self._plan.capabilities:
            self._state = result.get("adapter_state", self._state)
        late = ticket.late or _tells_of_a_timeout(result)
        fault = self._fault(slot, ticket) if late else None
        again = late and fault is None and not ticket.given_up
        stale = late and self._plan.fresh_after_deadline and not slot.running
        # The next suspect gets a fresh process; a single one only goes if its earlier work may be to blame.
        used_up = ticket.alone and again if self._plan.single else ticket.alone or stale
        if again:
            ticket.work.set_aside(message)
            ticket.alone = True
            self._turns.suspect(ticket)
        elif not ticket.given_up:
            seconds, log = self._seconds(ticket), self._log(slot, ticket)
            ticket.work.answered(message, late=ticket.late, fault=fault, seconds=seconds, log=log)
        if used_up and slot in self._slots:
            self._retire(slot, politely=not (stale or again))
        else:
            self._tidy(slot)
        self._dispatch()

    def _is_serial(self, slot: Slot) -> bool:
        """Whether a request has the process to itself: it takes one at a time, and has ended it when it answers."""
        return slot.room == 1 and not self._plan.cancels

    def _fault(self, slot: Slot, ticket: Ticket) -> str | None:
        """What shows that it was the work itself that took too long; None where its process may have held it up."""
        if ticket.isolated:
            return _ALONE
        return None if self._allowance_s(slot, ticket) is None else _RESPONSIVE

    def _allowance_s(self, slot: Slot, ticket: Ticket) -> float | None:
        """How long its process kept it waiting; None where that was too long, or cannot be measured."""
        if slot.heartbeat is None or ticket.work.limit_s is None:
            return None
        held_s = slot.heartbeat.held_s - ticket.held_mark
        return held_s if held_s <= _MAX_HELD * ticket.work.limit_s else None

    def _over(self, slot: Slot, ticket: Ticket) -> None:
        """The deadline is over: the process may end the example by itself for a moment still."""
        limit_s = ticket.work.limit_s or 0.0
        allowance_s = None if ticket.isolated else self._allowance_s(slot, ticket)
        left_s = limit_s + (allowance_s or 0.0) - (self._loop.time() - ticket.sent)
        if left_s > _SOON_S:
            ticket.timer = self._loop.call_later(left_s, self._over, slot, ticket)
            return
        ticket.late = True
        if self._plan.cancels:
            self._send_cancel(slot, ticket)
        ticket.timer = self._loop.call_later(GRACE_S, self._hung, slot, ticket)

    def _hung(self, slot: Slot, ticket: Ticket) -> None:
        fault = self._fault(slot, ticket)
        ran = self._remove(slot)
        if fault is not None and not ticket.given_up:
            ran.remove(ticket)
            ticket.work.timed_out(fault, self._seconds(ticket), self._log(slot, ticket))
        for one in reversed(ran):
            one.alone = one.alone or one.late  # held up by another, or too long by itself: alone it will show
            self._turns.again(one)
        self._supply.end(slot.process, polite=False)
        self._dispatch()

    def _died(self, slot: Slot, how: Exit) -> None:
        victims = self._remove(slot)
        if not slot.used and not how.blameless:
            # It could be started, but does not stay: another at once would fare no better.
            self._supply.failed(
                ProgramFailed(f"the program's process {how} before it was given anything", stage="start")
            )
        for ticket in victims:
            if ticket.apart or (ticket.died and not how.blameless):
                ticket.work.died(how, self._seconds(ticket), self._log(slot, ticket))
            else:
                ticket.alone, ticket.apart, ticket.died = True, how.blameless, True
                self._turns.suspect(ticket)
        self._dispatch()

    def _release(self, slot: Slot, ticket: Ticket) -> None:
        if ticket.timer is not None:
            ticket.timer.cancel()
            ticket.timer = None
        if ticket in slot.running:
            slot.running.remove(ticket)
            self._running -= 1
        slot.ghosts.discard(ticket)
        ticket.slot = None
        if slot.heartbeat is not None and not slot.running:
            slot.heartbeat.stop()

    def _seconds(self, ticket: Ticket) -> float:
        return round(self._loop.time() - ticket.sent, 6)

    def _log(self, slot: Slot, ticket: Ticket) -> Callable[[], str]:
        return functools.partial(slot.process.log_since, ticket.log_mark)

    # -- giving up ---------------------------------------------------------------------------------------------------

    def _give_up(self, tickets: Sequence[Ticket]) -> None:
        """Nobody waits for these any more: their room is free at once."""
        for ticket in tickets:
            ticket.given_up = True
            slot = ticket.slot
            if slot is None or ticket not in slot.running:
                continue
            slot.running.remove(ticket)
            self._running -= 1
            slot.ghosts.add(ticket)  # its deadline stands: a process that never answers it is ended in the end
            if self._plan.cancels:
                self._send_cancel(slot, ticket)
        self._turns.forget_given_up()
        for slot in {ticket.slot for ticket in tickets if ticket.slot is not None}:
            self._tidy(slot)
        self._dispatch()

    def _send_cancel(self, slot: Slot, ticket: Ticket) -> None:
        slot.process.request("cancel", {"call_id": ticket.call_id}, lambda _: None)

    def _tidy(self, slot: Slot) -> None:
        """End a process that only works for nobody, or that is one too many."""
        if slot not in self._slots or slot.running:
            return
        slot.exclusive = False
        for_nobody = bool(slot.ghosts) and not self._plan.cancels
        too_many = slot.used and not slot.ghosts and len(self._slots) > self._wanted()
        if for_nobody or too_many:
            self._retire(slot)

    # -- processes ---------------------------------------------------------------------------------------------------

    def _wanted(self) -> int:
        if self._plan.single:
            return self._plan.size
        alone = self._turns.suspects + sum(slot.exclusive for slot in self._slots)
        return self._plan.size + min(alone, _EXTRA_PROCESSES)

    def _fill(self) -> None:
        self._supply.order(self._wanted() - len(self._slots))

    def _arrived(self, started: Started) -> None:
        self._add(started)
        self._dispatch()

    def _add(self, started: Started) -> None:
        limit_s = self._plan.limits.example_timeout_s or self._plan.call_timeout_s
        heartbeat = Heartbeat(started.process, limit_s) if self._plan.cancels else None
        slot = Slot(started, self._state, heartbeat)
        self._slots.append(slot)
        started.process.exited.add_done_callback(lambda exited: self._exited(slot, exited.result()))

    def _exited(self, slot: Slot, how: Exit) -> None:
        if slot in self._slots:
            self._died(slot, how)

    def _not_to_be_had(self, error: ProgramFailed) -> None:
        if not self.ready:
            self._refuse_all(error)

    def _refuse_all(self, error: ProgramFailed) -> None:
        """End every call that waits or runs: no process can be had for it."""
        running = [ticket for slot in self._slots for ticket in slot.running]
        for ticket in (*self._turns.waiting(), *running):
            # An exception is for one who raises it: each adds to its traceback.
            ticket.work.refused(copy(error))

    def _remove(self, slot: Slot) -> list[Ticket]:
        """Take a process out of use; what ran in it."""
        self._slots.remove(slot)
        running = sorted(slot.running, key=lambda ticket: ticket.sent)
        for ticket in (*running, *slot.ghosts):
            self._release(slot, ticket)
        return running

    def _retire(self, slot: Slot, *, politely: bool = True) -> None:
        busy = bool(slot.running or slot.ghosts)
        self._remove(slot)
        self._supply.end(slot.process, polite=politely and not busy)


def _rows(batch: Sequence[Example]) -> list[dict[str, Any]]:
    return [{"id": example.id, "data": example.data} for example in batch]


def _tells_of_a_timeout(result: Any) -> bool:
    """The process may have noticed before we did."""
    results = result.get("results") if isinstance(result, dict) else None
    return isinstance(results, list) and any(
        isinstance(one, dict) and one.get("status") == "timeout" for one in results
    )


def _closing() -> ProgramFailed:
    return ProgramFailed("the server is shutting down", stage="close", retryable=True)
