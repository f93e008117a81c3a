"""One call until it has its answer: which endpoint it goes to, when it is repeated, retried elsewhere, or given up."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from gepa_client.errors import BadResponse, ConnectionLost, InstanceChanged, Interrupted, Refused, summary
from gepa_client.fleet.endpoint import (
    LONGEST_REQUESTED_S,
    REPLACED,
    Endpoint,
    attempt_once,
    growing_s,
    requested_pause_s,
    write_end,
)
from gepa_client.fleet.example_retries import BACKOFF_FACTOR, ExampleRetries
from gepa_client.fleet.slots import Pin
from gepa_client.transport.calls import INCONCLUSIVE, AttemptLog, Call, FailureCost, Reply
from protocol.errors import (
    CallIdConflict,
    CallNotFound,
    Overloaded,
    ProgramFailed,
    RpcError,
    TrajectoryExpired,
    Unauthorized,
    UnknownCandidate,
)

if TYPE_CHECKING:
    from gepa_client.fleet.fleet import Fleet

T = TypeVar("T")

PINNED_ATTEMPTS = 2
"""Failures after which a pinned call goes elsewhere: tracing a minibatch again costs less than a run that pauses."""

REPEATS = 2
"""How often a lost attempt is sent again to the process that may know it, before a new attempt is made elsewhere."""

SHOWN = 12
"""Characters of a commit's id in messages."""

NOT_THE_SERVER = (BadResponse, Refused)
"""Errors that no server raises: a proxy in between answers in its place, or its certificate is not trusted."""

ENDPOINT_FAULTS = (ProgramFailed, Unauthorized, *NOT_THE_SERVER)
"""Errors of the endpoint rather than of the call: another endpoint may answer."""

RETRIABLE = (ConnectionLost, BadResponse, Refused, RpcError)
Failure: TypeAlias = ConnectionLost | BadResponse | Refused | RpcError
"""Failures of an attempt that do not end the call at once."""


class InconclusiveResult(Exception):
    """An example of a call is `infra_error` or `cancelled`: the call must be tried again."""


@dataclass
class CallExecution(Generic[T]):
    """The state of one call until it has its answer.

    `failures`: attempts that reached a server and brought nothing. `repeat`: the endpoint to send the open attempt to
    again under its own id, to the process `sent_to`; None if no attempt is open. `reached`: the open attempt may have
    run. `error`: of the attempt's last sending. `uploaded`: (instance, commit) of commits that an endpoint lacked for
    this call and received. `probed`: rows that were run to learn whether there is an outage. `pause_s`: seconds to wait
    before the next attempt.
    """

    call: Call[T]
    log: AttemptLog
    pin: Pin | None
    fleet: "Fleet"
    failures: int = 0
    failed_at: set[Endpoint] = field(default_factory=set)
    avoid: Endpoint | None = None
    repeat: Endpoint | None = None
    repeats: int = 0
    sent_to: str | None = None
    reached: bool = False
    error: Exception | None = None
    uploaded: set[tuple[str | None, str]] = field(default_factory=set)
    probed: list[str] = field(default_factory=list)
    pause_s: float = 0.0

    def __post_init__(self) -> None:
        self.retries = ExampleRetries(self.fleet.evidence, self.call.rows)

    async def run(self) -> Reply[T]:
        """Return the answer; see `Fleet.call`."""
        self.fleet.shutdown.check()
        ticket = self.fleet.queue.ticket()
        earlier = self.log.unfinished()
        if earlier is not None:
            self.repeat, self.sent_to, self.reached = self.fleet.holding(earlier[1]), earlier[1], True
            if self.repeat is None or not self.repeat.client.offers("idempotency"):
                self._give_up_attempt()
        try:
            while True:
                async with self.fleet.concurrency.hold(len(self.call.rows)):
                    endpoint = None
                    while endpoint is None:
                        endpoint = await self._place(ticket)
                    reply = await self._attempt(endpoint)
                if reply is not None:
                    return reply
                await self._pause()
        finally:
            self.fleet.evidence.settled([*self.call.rows, *self.probed])

    async def _pause(self) -> None:
        """Wait before the next attempt, at least as long as the hosts that failed ask for."""
        pause_s, self.pause_s = self.pause_s, 0.0
        if not pause_s:
            return
        latest = time.monotonic() + LONGEST_REQUESTED_S
        pause_s = max(pause_s, self.retries.requested_s())
        while pause_s > 0:  # meanwhile another row may have been asked to wait longer
            await self.fleet.shutdown.pause(pause_s)
            pause_s = min(self.retries.requested_s(), latest - time.monotonic())

    # --- a slot ------------------------------------------------------------------------------------------------------

    async def _place(self, ticket: int) -> Endpoint | None:
        """Wait for a slot where the call must or may go; None: look again."""
        self.fleet.shutdown.check()
        if self.repeat is not None:
            if self.repeat.gone or self.repeat.instance != self.sent_to:
                self._give_up_attempt()
                return None
            return await self._slot(ticket, self.repeat)
        pin = self.pin if self.failures < PINNED_ATTEMPTS else None
        home = self.fleet.holding(pin.instance) if pin is not None else None
        if home is not None and home.offers("refs") and home.offers(self.call.needs):
            return await self._slot(ticket, home)
        endpoint = await self._slot(ticket)
        if pin is not None and endpoint is not None and endpoint.offers("refs"):
            if self.fleet.holding(pin.instance) is not home:  # another call of the minibatch has chosen meanwhile
                self.fleet.release(endpoint)
                return None
            pin.move(endpoint.instance)
        return endpoint

    async def _slot(self, ticket: int, at: Endpoint | None = None) -> Endpoint | None:
        """Wait for a slot of `at`, or of any endpoint that has what the call needs; None: look again."""
        queue, needs = self.fleet.queue, self.call.needs
        patience_s = self.fleet.patience_s(needs, at)
        if patience_s is None:
            return await queue.take(ticket, at=at, avoid=self.avoid, needs=needs)
        try:
            async with asyncio.timeout(patience_s):
                return await queue.take(ticket, at=at, avoid=self.avoid, needs=needs)
        except TimeoutError:
            if at is not None and queue.offering(needs):
                queue.give_up(at)
            return None

    # --- an attempt --------------------------------------------------------------------------------------------------

    async def _attempt(self, endpoint: Endpoint) -> Reply[T] | None:
        """Send once; None: it brought nothing, and the next step is decided."""
        cooldowns, repeat = endpoint.cooldowns, self.repeat is not None
        try:
            if await endpoint.was_replaced():
                self.fleet.recheck(endpoint, REPLACED, cooldowns=cooldowns)
                return None
            if not repeat:
                await self._probes(endpoint)
            call_id = await self.log.start(endpoint.url, endpoint.instance, repeat=repeat)
            self.repeat, self.sent_to, self.reached, self.error = None, endpoint.instance, self.reached and repeat, None
            idempotent = endpoint.client.offers("idempotency")
            self.retries.sending(endpoint.url, again=repeat)
            answer: Reply[T] | Failure
            try:
                with endpoint.answering(self.call):
                    answer = await endpoint.client.send(self.call, call_id if idempotent else None)
            except asyncio.CancelledError:
                self._finish("cancelled")
                raise
            except RETRIABLE as caught:
                answer = caught
                self.error = caught if isinstance(caught, RpcError | Refused) else None
            except BaseException:
                self._finish("error")
                raise
        finally:
            self.fleet.release(endpoint)
        if isinstance(answer, Reply):
            return self._replied(endpoint, answer, cooldowns)
        commit = answer.details.get("commit") if isinstance(answer, UnknownCandidate) else None
        if isinstance(commit, str) and (endpoint.instance, commit) not in self.uploaded:
            await self._upload(endpoint, commit, cooldowns)
        else:
            await self._failed(endpoint, answer, cooldowns, idempotent=idempotent)
        return None

    async def _probes(self, endpoint: Endpoint) -> None:
        """Run other rows again if only that shows whether there is an outage or an example always fails."""
        if self.call.probe is None or self.retries.unclear(endpoint.url) is None:
            return
        async with self.fleet.evidence.probing:
            while (ended := self.retries.unclear(endpoint.url)) is not None:
                if (found := self.call.probe(ended)) is None or not await self._probe(endpoint, *found):
                    return

    async def _probe(self, endpoint: Endpoint, call: Call[Any], log: AttemptLog) -> bool:
        """Run another row; return whether there is an answer."""
        self.probed += call.rows
        probing = ExampleRetries(self.fleet.evidence, call.rows)
        probing.sending(endpoint.url)
        try:
            reply = await attempt_once(endpoint, call, log)
        except RETRIABLE:  # the next attempt meets the same
            return False
        probing.judge(reply.value)
        return True

    async def _upload(self, endpoint: Endpoint, commit: str, cooldowns: int) -> None:
        """Upload the commit for lack of which the attempt ran nothing; the call is then made again."""
        bundles = self.fleet.bundles(commit)
        if not bundles:
            self._finish("refused")
            raise Interrupted(
                "paused",
                f"{endpoint.url} lacks commit {commit[:SHOWN]}, and the run has no bundle of it: fetch it into the "
                "repository there, or leave this endpoint out",
            )
        try:
            await endpoint.upload(bundles)
        except (ConnectionLost, BadResponse, Refused, Overloaded) as error:
            await self._failed(endpoint, error, cooldowns, idempotent=False)
        except RpcError as error:
            self._upload_refused(endpoint, commit, error, cooldowns)
        except BaseException:
            self._finish("refused")
            raise
        else:
            self.uploaded.add((endpoint.instance, commit))
            self.fleet.works(endpoint)
            self._finish("refused")

    def _upload_refused(self, endpoint: Endpoint, commit: str, error: RpcError, cooldowns: int) -> None:
        """Try another endpoint, which may have room for the commit; raises `Interrupted` if none is left."""
        self.fleet.works(endpoint)
        self._finish("refused")
        try:
            self._endpoint_failed(endpoint, error, cooldowns)
        except RpcError:
            message = f"{endpoint.url} does not accept commit {commit[:SHOWN]}, and no other endpoint is left for it"
            raise Interrupted("paused", f"{message}: {summary(error)}") from error

    def _replied(self, endpoint: Endpoint, reply: Reply[T], cooldowns: int) -> Reply[T] | None:
        """Return the reply, with the failures of examples that fail too often as the candidate's; None: try again."""
        self.fleet.works(endpoint)
        results = cast("list[dict[str, Any]]", reply.value) if self.call.rows else []
        judged = self.retries.judge(results)
        if results and self.retries.open:
            write_end(self.log, reply, self.retries.failed_tries())
            self._back_off(endpoint, InconclusiveResult(self._inconclusive(results)), cooldowns)
            return None
        if judged != results:
            outcome = next(result["status"] for result in judged if result["status"] != "ok")
            reply = replace(reply, value=cast("T", judged), outcome=outcome)
        reply.endpoint = endpoint.url
        endpoint.answered(cooldowns)
        if self.pin is not None and self.pin.instance == endpoint.instance:
            self.pin.settled = True
        write_end(self.log, reply)
        return reply

    def _inconclusive(self, results: Sequence[dict[str, Any]]) -> str:
        pairs = zip(self.call.rows, results, strict=True)
        row, result = next(each for each in pairs if each[1]["status"] in INCONCLUSIVE)
        error = result.get("error") or {}
        cause = f": {error.get('type')}: {error.get('message')}" if error else ""
        return f"example {row!r} is {result['status']}{cause}"

    async def _failed(self, endpoint: Endpoint, error: Failure, cooldowns: int, *, idempotent: bool) -> None:
        """Decide the next step, waiting if that is part of it; raises what ends the call."""
        if isinstance(error, Overloaded):
            self._overloaded(endpoint, error, cooldowns, idempotent=idempotent)
            return
        self.fleet.works(endpoint)
        if isinstance(error, ConnectionLost):
            self._lost(endpoint, error, cooldowns, idempotent=idempotent)
        elif isinstance(error, CallIdConflict) and self.reached:  # an earlier process sent another request
            self._finish("lost")
        elif isinstance(error, CallNotFound):  # its outcome is unknown and stays so
            self._finish("lost")
            self._back_off(endpoint, error, cooldowns)
        else:
            self._finish("error")
            if isinstance(error, ENDPOINT_FAULTS):
                self._endpoint_failed(endpoint, error, cooldowns)
            elif error.retryable:
                self._back_off(endpoint, error, cooldowns)
            else:
                if isinstance(error, TrajectoryExpired) and await endpoint.is_replaced():
                    self.fleet.recheck(endpoint, REPLACED, cooldowns=cooldowns)
                raise error

    def _overloaded(self, endpoint: Endpoint, error: Overloaded, cooldowns: int, *, idempotent: bool) -> None:
        """Handle a call that was not accepted, which is no evidence about the call itself."""
        if self.reached and idempotent:
            self.repeat = endpoint  # an earlier sending of the same attempt was accepted
        else:
            self._finish("refused")
        self.fleet.cool_down(
            endpoint, "overloaded", summary(error), cooldowns=cooldowns, requested_s=requested_pause_s(error)
        )

    def _lost(self, endpoint: Endpoint, error: ConnectionLost, cooldowns: int, *, idempotent: bool) -> None:
        """Keep the attempt open if its process may still have the answer, else give it up."""
        self.fleet.shutdown.check()  # a call that is not made again must not stop the run for another reason
        self.reached = self.reached or error.sent
        if isinstance(error, InstanceChanged):
            self.fleet.recheck(endpoint, summary(error), cooldowns=cooldowns)
        else:
            self.fleet.cool_down(endpoint, "lost", summary(error), cooldowns=cooldowns)
        if error.refused and not endpoint.up:  # the process there has ended, unless it is known to be back
            self.fleet.queue.give_up(endpoint)
        alive = not error.refused and not isinstance(error, InstanceChanged)
        if self.reached and idempotent and alive and (self.repeats < REPEATS or not self.fleet.queue.up):
            self.repeat = endpoint
            self.repeats += 1
        else:
            self.avoid = endpoint if alive else None  # a process that replaces another is as good as any
            self._give_up_attempt()
        if error.sent:
            self._count(error)

    def _endpoint_failed(self, endpoint: Endpoint, error: BadResponse | Refused | RpcError, cooldowns: int) -> None:
        """Raise the error unless another endpoint may answer; each is tried before any counts a second time."""
        if isinstance(error, Unauthorized) and (renewal := self._token_renewal(endpoint)) is not None:
            self.fleet.recheck(endpoint, renewal, cooldowns=cooldowns)
            return
        renewed = endpoint.is_renewed_after(error)
        tried_before = endpoint in self.failed_at
        self.failed_at.add(endpoint)
        # An endpoint that fails another call's program fails this one's too; a proxy's failure may have passed.
        hopeless = ("unreached",) if isinstance(error, NOT_THE_SERVER) else ("unreached", "broken")
        able = (each for each in self.fleet.endpoints if each.offers(self.call.needs))
        others = any(each not in self.failed_at and each.cooldown not in hopeless for each in able)
        pinned = self.pin if self.pin is not None and self.pin.instance == endpoint.instance else None
        held = pinned is not None and pinned.settled and not isinstance(error, NOT_THE_SERVER)
        if not renewed and (held or not others):
            raise error
        if pinned is not None and not renewed:
            pinned.move(None)
        self.avoid = endpoint
        self.fleet.cool_down(endpoint, "broken", summary(error), cooldowns=cooldowns)
        if tried_before:
            self._count(error)

    def _token_renewal(self, endpoint: Endpoint) -> str | None:
        """Return why a refused token does not end the call (it was replaced, or its file is being written), or None."""
        try:
            return "its token has changed" if endpoint.client.read_token(self.fleet.on_token) else None
        except Refused as error:
            return summary(error)

    def _back_off(self, endpoint: Endpoint, error: Exception, cooldowns: int) -> None:
        """Have the next attempt wait, longer each time, and prefer another endpoint, if there is one."""
        self.avoid = endpoint
        if endpoint.failed(cooldowns) and self.fleet.queue.up > 1:  # pausing the only endpoint would gain nothing
            self.fleet.cool_down(endpoint, "failing", summary(error), cooldowns=cooldowns)
        self._count(error)
        self.pause_s = growing_s(self.fleet.first_backoff_s, BACKOFF_FACTOR, self.failures - 1)

    def _count(self, error: Exception) -> None:
        self.failures += 1
        stuck = isinstance(error, InconclusiveResult) and not self.retries.outage
        if self.failures >= self.fleet.max_attempts and not stuck:
            lost = "server lost, " if isinstance(error, ConnectionLost) else ""
            raise Interrupted(
                "paused",
                f"{lost}{self.call.about}: no result after {self.failures} attempts; last error: {summary(error)}",
            ) from error

    # --- bookkeeping -------------------------------------------------------------------------------------------------

    def _finish(self, outcome: str) -> None:
        """Write the end of an attempt without a result."""
        cost = self.call.failure_cost(self.error, outcome) if self.call.failure_cost is not None else FailureCost()
        self.log.finish(outcome, usage=cost.usage, examples=0, unpriced=cost.unpriced)

    def _give_up_attempt(self) -> None:
        self._finish("lost" if self.reached else "refused")
        self.repeat, self.repeats, self.reached = None, 0, False
