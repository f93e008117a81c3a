"""The endpoints of a run behind one interface that answers calls: they join, cool down, return and leave."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gepa_client.errors import ClientError, ConnectionLost, Interrupted, NoVerdict, Refused, summary
from gepa_client.fleet.endpoint import Bundle, Cooldown, Endpoint, FleetEvent, FleetEventKind, requested_pause_s
from gepa_client.fleet.endpoints_file import file_changes, read_endpoints_file
from gepa_client.fleet.example_retries import BACKOFF_S, HostEvidence
from gepa_client.fleet.handshake import (
    SplitChoice,
    changed_since_start,
    differences,
    digests_differ,
    first_answers,
    has_unknown_code,
    lacking,
)
from gepa_client.fleet.routed_call import CallExecution
from gepa_client.fleet.seed_comparison import SeedComparison
from gepa_client.fleet.slots import InFlightLimit, Pin, Shutdown, Slots
from gepa_client.transport.address import Address
from gepa_client.transport.calls import AttemptLog, Call, Reply
from gepa_client.transport.event_loop import GroupTask, run_group
from gepa_client.transport.rpc_client import RpcClient
from protocol import DiscoverResult
from protocol.errors import Overloaded, RpcError

PATIENCE_S = 15.0
"""Seconds that calls for an unreachable endpoint alone wait for it while another one is up."""

PROBE_TIMEOUT_S = 30.0
"""Seconds that a probe waits for its answer: longer than connecting takes, as a program may have to start first."""

OTHER_DIGEST = (
    "its program's digest is not that of the first server: other code, or settings of its own; scores may differ"
)
OTHER_CODE = (
    "was started again with a changed program (its digest is another one), and the scores of two programs would be "
    "mixed: start the server with the program as it was, then resume; or start a new run with the changed program "
    "(a run with `allow_mixed_programs` continues with both)"
)

UNKNOWN_CODE = (
    "its program declares no version, and its server no digest, so the code that it runs is unknown: a change to it "
    "goes unnoticed"
)

FIRST_IN_LINE = -1
"""The ticket of an evaluation that lets a server join: before those of all calls."""

SLOT_S = 120.0
"""Seconds that such an evaluation waits for a slot: those that could give one may be away for good."""

Failure = (RpcError, ClientError)

T = TypeVar("T")


@dataclass
class _Outage:
    """Calls wait in vain since then, on the monotonic clock; `reported`: once."""

    since: float
    reported: bool = False


@dataclass(eq=False, kw_only=True)
class Fleet:
    """Gives each call to the least busy endpoint, and to another one if that one fails. One event loop.

    `max_attempts`: attempts that reach a server before the run pauses, unless other rows' calls succeed meanwhile (see
    `ExampleRetries`). `first_backoff_s`: the mean wait after the first failure, three times as long after each further
    one. `max_outage_s`: how long calls wait while no endpoint is up. `splits`: chooses the splits whose rows must be
    the same everywhere. `allow_mixed_programs`: programs of different names, or results, may work together if all else
    is the same. `example_timeout_s`: lowers the servers' own limit; endpoints that cannot be given one are refused.
    `concurrency`: bounds the examples in flight at all endpoints together. `on_event`: called with each change of
    state. `on_token`: called with each token before it is used, as its file may be written while the fleet works.
    `bundles`: returns all that lead to a commit, parents first, for endpoints that lack it; empty if the run has no
    bundle of it.
    """

    max_attempts: int = 5
    first_backoff_s: float = BACKOFF_S
    max_outage_s: float = 600.0
    splits: SplitChoice | None = None
    allow_mixed_programs: bool = False
    example_timeout_s: float | None = None
    concurrency: InFlightLimit = field(default_factory=lambda: InFlightLimit(None))
    on_event: Callable[[FleetEvent], None] = lambda _: None
    on_token: Callable[[str], None] = lambda _: None
    bundles: Callable[[str], Sequence[Bundle]] = lambda _: ()
    endpoints: list[Endpoint] = field(default_factory=list, init=False)
    """All that belong to it, up or cooling down, in the order of joining; the list changes during the work."""

    def __post_init__(self) -> None:
        self.queue = Slots()
        self.shutdown = Shutdown(self.queue.wake)
        self.evidence = HostEvidence()
        self._outages: dict[str | None, _Outage] = {}
        self._last_error = ""
        self._allow_insecure = False
        self._leader: DiscoverResult | None = None
        self._comparison: SeedComparison | None = None
        self._unknown: set[str] = set()
        self._leaving: set[Endpoint] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- opening and closing ------------------------------------------------------------------------------------------

    async def open(self, addresses: Sequence[Address]) -> DiscoverResult:
        """Contact all endpoints at once and return what the leader declares: the first in order that answers.

        Endpoints that do not answer are reported and tried again later.

        Raises:
            Refused: an address cannot be used, or the endpoints do not serve the same; all differences are named.
            RpcError, ClientError: none can be used; with one endpoint, its own error.
        """
        self.shutdown.bind()
        try:
            return await self._open(addresses)
        except BaseException:
            await self.aclose()
            raise

    async def _open(self, addresses: Sequence[Address]) -> DiscoverResult:
        by_url: dict[str, Endpoint] = {}
        for address in addresses:
            endpoint = Endpoint.at(address, self.example_timeout_s)
            by_url.setdefault(endpoint.url, endpoint)
        self.endpoints = list(by_url.values())
        if not self.endpoints:
            raise Refused("no endpoint is given: name the address of a server, or a fleet file that lists one")
        self._allow_insecure = any(address.allow_insecure for address in addresses)
        answers = await first_answers(
            self.endpoints, self.on_token, lambda endpoint, error: self._report("resting", endpoint, summary(error))
        )
        answered = {each: answer for each, answer in answers.items() if not isinstance(answer, Exception)}
        silent = {each: answer for each, answer in answers.items() if isinstance(answer, Exception)}
        if not answered:
            if len(silent) == 1:
                raise next(iter(silent.values()))
            causes = "\n  ".join(f"{each.url}: {summary(error)}" for each, error in silent.items())
            raise ConnectionLost(f"none of the {len(silent)} endpoints answers:\n  {causes}", sent=False)
        first, self._leader = next(iter(answered.items()))
        timeout_s = self.example_timeout_s
        if unable := [f"{each.url}: {why}" for each, answer in answered.items() for why in lacking(answer, timeout_s)]:
            raise Refused("\n  ".join(unable))
        differing = {each: found for each, answer in answered.items() if (found := self._differences(answer))}
        if differing:
            named = [f"{each.url}: {'; '.join(found)}" for each, found in differing.items()]
            raise Refused("\n  ".join([f"the endpoints do not serve the same as {first.url}:", *named]))
        self._unknown = {first.url}  # the run itself warns of the first one
        for endpoint, discovery in answered.items():
            self._admit(endpoint, discovery, "joined")
        for endpoint, error in silent.items():
            self._warn(endpoint, f"will be tried again later: {summary(error)}")
            self._await_first_answer(endpoint, endpoint.next_cooldown_s())
        return self._leader

    async def aclose(self) -> None:
        """End the fleet's own tasks and close all clients; safe to call twice."""
        try:
            self.shutdown.close()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)  # `shutdown` has their errors
            for endpoint in [*self.endpoints, *self._leaving]:
                self.queue.stop(endpoint)
                await endpoint.client.aclose()

    async def cut(self, why: str) -> None:
        """End all calls in flight as lost; call it after `interrupt`, if they may never end."""
        for endpoint in [*self.endpoints, *self._leaving]:
            await endpoint.client.cut(why)

    def follow(self, path: Path) -> None:
        """Follow the fleet file: endpoints join and leave as it changes; a file that cannot be read changes nothing."""
        self._spawn(self._follow(path))

    def interrupt(self, interrupted: Interrupted) -> None:
        """Have waiting and later calls raise this, from any thread; calls in flight continue."""
        self.shutdown.stop(interrupted)

    # --- calls -------------------------------------------------------------------------------------------------------

    @property
    def discovery(self) -> DiscoverResult:
        """What the leader declared when the fleet was opened."""
        if self._leader is None:
            raise RuntimeError("the fleet is not open")
        return self._leader

    @property
    def clients(self) -> list[RpcClient]:
        """The endpoints' clients, for calls without retries; those of endpoints that are up come first."""
        return [endpoint.client for endpoint in sorted(self.endpoints, key=lambda each: not each.up)]

    @property
    def in_flight(self) -> int:
        """Calls that an endpoint is answering now."""
        return sum(endpoint.in_flight for endpoint in [*self.endpoints, *self._leaving])

    @property
    def waiting(self) -> int:
        """Calls that wait for a slot."""
        return self.queue.waiting

    @property
    def slots(self) -> int:
        """Calls that all endpoints which are up take at once."""
        return sum(endpoint.slots for endpoint in self.endpoints if endpoint.up)

    def offers(self, capability: str) -> bool:
        """Whether any endpoint that has answered names this capability: `call` then finds it."""
        return any(endpoint.offers(capability) for endpoint in self.endpoints)

    def call(self, call: Call[T], log: AttemptLog, *, pin: Pin | None = None) -> Coroutine[Any, Any, Reply[T]]:
        """Return the answer to a call, from whichever endpoint gives it; calls are served in the order of arrival.

        `log`: where each attempt is written before it is sent. `pin`: keeps the call on the instance of its minibatch.
        A call that `needs` a capability goes to the endpoints that have it, and waits while they cool down.

        Raises:
            Interrupted: `paused` after `max_attempts` without a result or `max_outage_s` without an endpoint for it, or
                at once if none has the capability it needs; or what `interrupt` was given.
            RpcError, ClientError: what neither a repetition nor another endpoint can change, as it came.
        """
        if self._leader is None:
            raise RuntimeError("the fleet is not open")
        return CallExecution(call, log, pin, self).run()

    def release(self, endpoint: Endpoint) -> None:
        """Give back a slot that a call had; an endpoint that has left is closed after its last call."""
        self.queue.release(endpoint)
        if endpoint.left:
            self._close_idle(endpoint)

    def holding(self, instance: str | None) -> Endpoint | None:
        """Return the endpoint whose process has this `instance_id`."""
        if instance is None:
            return None
        return next((each for each in self.endpoints if each.instance == instance and not each.gone), None)

    # --- reports from calls ------------------------------------------------------------------------------------------

    def cool_down(
        self, endpoint: Endpoint, cooldown: Cooldown, detail: str, *, cooldowns: int, requested_s: float | None = 0.0
    ) -> None:
        """Give the endpoint no new calls until it answers a probe; the first probe follows a growing pause.

        `cooldowns`: the endpoint's when the call was sent. A call from before the last cooldown is no new evidence, and
        many calls that fail together cause one cooldown. `requested_s`: the least pause; None to probe at once.
        """
        self._last_error = detail
        if not endpoint.left and cooldowns == endpoint.cooldowns:
            pause_s = 0.0 if requested_s is None else endpoint.next_cooldown_s(requested_s)
            self._start_cooldown(endpoint, cooldown, pause_s)
            self._report("resting", endpoint, detail, pause_s)

    def recheck(self, endpoint: Endpoint, detail: str, *, cooldowns: int) -> None:
        """Admit the other process that seems to answer at the address at once, if it serves the same."""
        self.cool_down(endpoint, "lost", detail, cooldowns=cooldowns, requested_s=None)

    def patience_s(self, needs: str | None, at: Endpoint | None) -> float | None:
        """Return how many seconds a call may wait for a slot of `at`, or of any endpoint that offers what it needs.

        None: without a limit, as it will have its turn. The first call that waits for an endpoint at all is reported.

        Raises:
            Interrupted: none came back in time, or all have answered, and none has this capability.
        """
        if self.queue.offering(needs):
            if at is None or at.up or at.cooldown == "overloaded":
                return None
            return at.since + PATIENCE_S - time.monotonic()
        now = time.monotonic()
        if needs and self.endpoints and not any(each.offers(needs) or each.instance is None for each in self.endpoints):
            raise Interrupted("paused", f"no endpoint of the fleet offers `{needs}`, which the run needs")
        lacked = needs if self.queue.up else None
        outage = self._outages.setdefault(lacked, _Outage(now))
        cause = f"; last error: {self._last_error}" if self._last_error else ""
        if now - outage.since >= self.max_outage_s:
            what = "no endpoint left" if lacked is None else f"no endpoint that offers `{lacked}`"
            raise Interrupted("paused", f"{what} for {now - outage.since:.3g} s{cause}")
        busy = lacked is None and self.endpoints and all(each.cooldown == "overloaded" for each in self.endpoints)
        if not outage.reported and not busy:
            outage.reported = True
            if lacked is None:
                self.on_event(FleetEvent("waiting", None, f"no endpoint is left{cause}", self.max_outage_s))
            else:
                limit_s = self.max_outage_s
                detail = f"no endpoint that offers `{lacked}` is left; calls that need it wait up to {limit_s:.3g} s"
                self.on_event(FleetEvent("warning", None, detail, limit_s))
        return outage.since + self.max_outage_s - now

    def works(self, endpoint: Endpoint) -> None:
        """Note that the endpoint accepts calls: no call waits in vain for what it offers."""
        if self._outages and endpoint.up:
            self._outages = {lacked: each for lacked, each in self._outages.items() if not endpoint.offers(lacked)}

    # --- joining -----------------------------------------------------------------------------------------------------

    async def compare(self, comparison: SeedComparison, recorded: DiscoverResult | None = None) -> None:
        """Compare the results of the endpoints now, and of each that joins or is back from now on.

        `recorded`: what the first server of a run declared that is resumed. Endpoints with the code of one that agrees
        are not compared.

        Raises:
            Refused: the results of some differ beyond noise, unless mixed programs are allowed; all are named.
        """
        self._comparison = comparison
        up = [endpoint for endpoint in self.endpoints if endpoint.up]
        described = [endpoint.described for endpoint in up if endpoint.described is not None]
        if recorded is not None:
            comparison.agree(recorded)
        elif described:
            comparison.agree(described[0], up[0].url)
        new = [each for each in zip(up, described, strict=True) if comparison.verdict(each[0].url, each[1]) is None]
        for endpoint, _ in new:
            self.queue.stop(endpoint)
        refused: list[str] = []

        async def compare_one(endpoint: Endpoint, discovery: DiscoverResult, _task: GroupTask) -> None:
            try:
                found = await self._other_results(endpoint, discovery)
            except Failure as error:
                self.cool_down(endpoint, "failing", summary(error), cooldowns=endpoint.cooldowns)
                return
            if found:
                refused.append(f"{endpoint.url}: {found}")
            elif not endpoint.left:
                self.queue.start(endpoint)

        tasks = [GroupTask(functools.partial(compare_one, *each)) for each in new]
        while tasks and not self.queue.up:  # with the results of the first of these the others are compared
            await run_group([tasks.pop(0)])
        await run_group(tasks)
        if refused:
            raise Refused("the endpoints do not serve the same:\n  " + "\n  ".join(refused))

    async def _other_results(self, endpoint: Endpoint, discovery: DiscoverResult) -> str:
        """Return how the results of an endpoint that joins differ from the run's; "" if it may join.

        Raises: as `SeedComparison.compare`.
        """
        comparison = self._comparison
        if comparison is None or (known := comparison.verdict(endpoint.url, discovery)) == "":
            return ""
        if known is not None:
            return known
        if endpoint.instance not in (None, discovery.server.instance_id):
            self.queue.give_up(endpoint)  # no call need wait meanwhile for what the former process knew
        slot = self._slot if self.queue.up else None
        if slot is not None or await comparison.has_results():
            found = await comparison.compare(endpoint, slot)
            if found.differences and found.certain and not self.allow_mixed_programs:
                why = f"{found} (`allow_mixed_programs` lets it join)"
                comparison.refuse(endpoint.url, discovery, why)
                return why
            if found.differences:
                self.on_event(FleetEvent("warning", endpoint.url, str(found), about_scores=True))
        comparison.agree(discovery, endpoint.url)
        return ""

    @asynccontextmanager
    async def _slot(self, call: Call[Any]) -> AsyncIterator[Endpoint]:
        """Hold a slot of an endpoint that works, before all calls that wait. Raises NoVerdict if there is none."""
        try:
            async with asyncio.timeout(SLOT_S):
                while (endpoint := await self.queue.take(FIRST_IN_LINE, needs=call.needs)) is None:
                    self.shutdown.check()
        except TimeoutError:
            raise NoVerdict("no server that works has room") from None
        try:
            yield endpoint
        finally:
            self.release(endpoint)

    def _differences(self, discovery: DiscoverResult) -> list[str]:
        leader = self.discovery
        splits = self.splits(leader) if self.splits is not None else ()
        return [
            *lacking(discovery, self.example_timeout_s),
            *differences(leader, discovery, splits, allow_mixed_programs=self.allow_mixed_programs),
        ]

    def _runs_other_code(self, endpoint: Endpoint, discovery: DiscoverResult) -> bool:
        """Return whether the process that was started at the address has another program than the one before it."""
        before = endpoint.described
        declared = discovery.program.version is not None
        return before is not None and not (declared or self.allow_mixed_programs) and digests_differ(before, discovery)

    def _admit(self, endpoint: Endpoint, discovery: DiscoverResult, kind: FleetEventKind) -> None:
        """Let the endpoint work."""
        twin = self.holding(discovery.server.instance_id)
        if kind == "joined" and twin is not None:
            self._report("warning", endpoint, f"reports that it is the same process as {twin.url}; is it given twice?")
        doubt = changed_since_start(discovery)
        if doubt is not None:
            self._warn(endpoint, doubt)
        elif self._leader is not None and digests_differ(self._leader, discovery):
            self._warn(endpoint, OTHER_DIGEST, about_scores=True)
        else:
            endpoint.last_warning = ""
        if has_unknown_code(discovery) and endpoint.url not in self._unknown:
            self._unknown.add(endpoint.url)
            self.on_event(FleetEvent("warning", endpoint.url, UNKNOWN_CODE, about_scores=True))
        was, away_s = endpoint.cooldown, time.monotonic() - endpoint.since
        endpoint.admit(discovery)
        self._report(kind, endpoint, seconds=away_s if kind == "back" else None)
        self.queue.start(endpoint)
        if was != "overloaded":
            self.works(endpoint)

    # --- cooling down and returning----------------------------------------------------------------------------------

    def _start_cooldown(self, endpoint: Endpoint, cooldown: Cooldown, pause_s: float) -> None:
        now = time.monotonic()
        endpoint.cooldown, endpoint.since, endpoint.until = cooldown, now, now + pause_s
        endpoint.cooldowns += 1
        self.queue.stop(endpoint)
        endpoint.prober = self._spawn(self._probe(endpoint))

    async def _probe(self, endpoint: Endpoint) -> None:
        """Probe the endpoint until it answers as it should."""
        while True:
            await asyncio.sleep(endpoint.until - time.monotonic())
            requested_s = 0.0
            try:
                endpoint.client.read_token(self.on_token)
                discovery = await endpoint.client.discover(timeout_s=PROBE_TIMEOUT_S, resends=0)
                found = "; ".join(self._differences(discovery))
                changed = not found and self._runs_other_code(endpoint, discovery)
                if not found and not changed:
                    found = await self._other_results(endpoint, discovery)
            except Interrupted:  # the run stops
                return
            except Failure as error:
                self._last_error = f"{endpoint.url}: {summary(error)}"
                if isinstance(error, Overloaded):
                    requested_s = requested_pause_s(error)
                elif endpoint.cooldown == "overloaded":
                    endpoint.cooldown = "lost"
                    self.queue.wake()
                if isinstance(error, ConnectionLost) and error.refused:
                    self.queue.give_up(endpoint)
                elif not isinstance(error, Overloaded | ConnectionLost) or endpoint.instance is None:
                    self._warn(endpoint, f"will be tried again later: {summary(error)}")
            else:
                if changed:
                    self.shutdown.stop(Interrupted("paused", f"{endpoint.url} {OTHER_CODE}"))
                    return
                if not found:
                    self._admit(endpoint, discovery, "joined" if endpoint.instance is None else "back")
                    return
                self.queue.give_up(endpoint)
                self._last_error = f"{endpoint.url}: {found}"
                self._warn(endpoint, found, "refused")
            endpoint.until = time.monotonic() + endpoint.next_cooldown_s(requested_s)

    def _warn(
        self, endpoint: Endpoint, detail: str, kind: FleetEventKind = "warning", *, about_scores: bool = False
    ) -> None:
        if endpoint.last_warning != detail:
            endpoint.last_warning = detail
            self.on_event(FleetEvent(kind, endpoint.url, detail, about_scores=about_scores))

    # --- the fleet file ----------------------------------------------------------------------------------------------

    async def _follow(self, path: Path) -> None:
        async for _ in file_changes(path):
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            listed = read_endpoints_file(path, allow_insecure=self._allow_insecure)
            fresh = [Endpoint.at(address, self.example_timeout_s) for address in listed]
        except Refused as error:
            self.on_event(FleetEvent("warning", None, f"{error}; the fleet stays as it is"))
            return
        wanted = {_line(endpoint) for endpoint in fresh}
        for endpoint in [each for each in self.endpoints if each.client.address.listed]:
            if _line(endpoint) not in wanted:
                self._leave(endpoint)
        here = {endpoint.url for endpoint in self.endpoints}
        for endpoint in fresh:
            if endpoint.url not in here:
                self.endpoints.append(endpoint)
                self._spawn(self._join(endpoint))

    async def _join(self, endpoint: Endpoint) -> None:
        await endpoint.client.__aenter__()
        self._await_first_answer(endpoint, 0.0)

    def _await_first_answer(self, endpoint: Endpoint, pause_s: float) -> None:
        endpoint.gone = True  # no call can need what it knows
        self._start_cooldown(endpoint, "unreached", pause_s)

    def _leave(self, endpoint: Endpoint) -> None:
        endpoint.left = True
        self.endpoints.remove(endpoint)
        self._leaving.add(endpoint)
        self.queue.stop(endpoint)
        self.queue.give_up(endpoint)
        if endpoint.prober is not None:
            endpoint.prober.cancel()
        if endpoint.in_flight:
            self._spawn(endpoint.drain())
        self._close_idle(endpoint)

    def _close_idle(self, endpoint: Endpoint) -> None:
        """Close an endpoint that has left once its last call has ended, and report it only then."""
        if endpoint.in_flight == 0:
            self._report("left", endpoint)
            self._spawn(self._close(endpoint))

    async def _close(self, endpoint: Endpoint) -> None:
        await endpoint.client.aclose()
        self._leaving.discard(endpoint)

    # --- bookkeeping -------------------------------------------------------------------------------------------------

    def _report(self, kind: FleetEventKind, endpoint: Endpoint, detail: str = "", seconds: float | None = None) -> None:
        self.on_event(FleetEvent(kind, endpoint.url, detail, seconds))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.shutdown.stop(error)


def _line(endpoint: Endpoint) -> tuple[object, ...]:
    """Return the endpoint's line in the fleet file: with any of it changed, it is another endpoint."""
    address = endpoint.client.address
    return endpoint.url, address.token_file, address.proxy_token_file
