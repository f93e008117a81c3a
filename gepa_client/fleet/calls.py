"""The rules of one call: where it goes, when it is sent again under its own id, when it is tried anew, when it ends."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from gepa_client.errors import BadResponse, ConnectionLost, InstanceChanged, Interrupted, Refused
from gepa_client.fleet.commit_uploader import SHOWN, Courier, lacking
from gepa_client.fleet.endpoint import Endpoint, asked_pause_s
from gepa_client.fleet.health import REPLACED, is_replaced, was_replaced
from gepa_client.fleet.membership import Members
from gepa_client.fleet.shutdown import Stops
from gepa_client.fleet.slots import Slots
from gepa_client.fleet.work import Answered, Attempts, NoVerdict, Pin
from gepa_client.transport.error_format import summary
from gepa_client.transport.rpc import RpcClient
from protocol.errors import (
    CallIdConflict,
    CallNotFound,
    Overloaded,
    ProgramFailed,
    RpcError,
    TrajectoryExpired,
    Unauthorized,
)

T = TypeVar("T")

BACKOFF_FACTOR = 3  # a hiccup costs half a second, yet five attempts outlast many a rate limit

PINNED_TRIES = 2
"""Failures after which a pinned call goes elsewhere: tracing a minibatch anew is cheaper than a run that pauses."""

REPEATS = 2
"""How often a lost attempt is sent again to the process that may know it, before it is made anew elsewhere."""

JUNK = (BadResponse, Refused)
"""No answer of a server's at all: most often something on the way to this endpoint speaks, or its certificate."""

BROKEN = (ProgramFailed, Unauthorized, *JUNK)
"""Errors that speak of the endpoint rather than of the call: another one may do better."""

Failure: TypeAlias = NoVerdict | ConnectionLost | BadResponse | Refused | RpcError
"""What an attempt may come to, short of an answer, without ending the call at once."""

_random = random.SystemRandom()  # never GEPA's global generator


@dataclass
class Call(Generic[T]):
    """One call until it has its answer.

    `failures`: attempts that reached a server and brought nothing. `repeat`: where the open attempt is to be sent again
    under its own id, to the process `sent_to`; None while no attempt is open. `reached`: the open attempt may have run.
    `in_vain_s`: waited while no endpoint that has what it `needs` was up. `brought`: (instance, commit) of commits that
    an endpoint lacked for it and was brought.
    """

    what: str
    send: Callable[[RpcClient, str | None], Awaitable[Answered[T]]]
    attempts: Attempts
    pin: Pin | None
    slots: Slots
    members: Members
    stops: Stops
    courier: Courier
    max_attempts: int
    first_backoff_s: float
    max_outage_s: float
    needs: str | None = None
    failures: int = 0
    broken_at: set[Endpoint] = field(default_factory=set)
    avoid: Endpoint | None = None
    repeat: Endpoint | None = None
    repeats: int = 0
    sent_to: str | None = None
    reached: bool = False
    in_vain_s: float = 0.0
    brought: set[tuple[str | None, str]] = field(default_factory=set)

    async def run(self) -> T:
        """The answer; see `Fleet.call`."""
        self.stops.check()
        ticket = self.slots.ticket()
        earlier = self.attempts.unfinished()
        if earlier is not None:
            self.repeat, self.sent_to, self.reached = self.members.find(*earlier), earlier[1], True
            if self.repeat is None or not self.repeat.client.offers("idempotency"):
                self._give_up_attempt()
        while True:
            endpoint = await self._place(ticket)
            answered = await self._attempt(endpoint) if endpoint is not None else None
            if answered is not None:
                return answered.value

    # --- a place -----------------------------------------------------------------------------------------------------

    async def _place(self, ticket: int) -> Endpoint | None:
        """A slot where the call must or may go; None: look again."""
        self.stops.check()
        if not self.slots.up:
            self.members.about_to_wait()
        if self.repeat is not None:
            return await self._place_again(ticket, self.repeat)
        pin = self.pin if self.failures < PINNED_TRIES else None
        if pin is None:
            return await self._anywhere(ticket)
        home = self._home(pin)
        if home is not None:
            return await self.slots.take(ticket, at=home)
        endpoint = await self._anywhere(ticket)
        if endpoint is not None and endpoint.client.offers("refs"):
            if self.members.holding(pin.instance) is not None:  # another call of the minibatch has chosen meanwhile
                self._release(endpoint)
                return None
            pin.move(endpoint.instance)
        return endpoint

    async def _anywhere(self, ticket: int) -> Endpoint | None:
        """A slot of any endpoint that has what the call needs; None: look again."""
        if self.needs is None or self.slots.offering(self.needs):
            return await self.slots.take(ticket, avoid=self.avoid, needs=self.needs)
        self.members.about_to_wait_for(self.needs, self.max_outage_s)
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.max_outage_s - self.in_vain_s):
                return await self.slots.take(ticket, avoid=self.avoid, needs=self.needs)
        except TimeoutError:
            last = self.members.outage.last_error
            why = f"; last error: {last}" if last else ""
            words = f"no endpoint that offers `{self.needs}` for {self.max_outage_s:.3g} s{why}"
            raise Interrupted("paused", words) from None
        finally:
            self.in_vain_s += time.monotonic() - began

    async def _place_again(self, ticket: int, where: Endpoint) -> Endpoint | None:
        """A slot of the endpoint whose process may have the answer; None, and the attempt is over, if that is gone."""
        endpoint = await self.slots.take(ticket, at=where) if where.instance == self.sent_to else None
        if endpoint is None:
            self.stops.check()  # the attempt stays open: who goes on with the run can still collect it
            self._give_up_attempt()
        return endpoint

    def _home(self, pin: Pin) -> Endpoint | None:
        """Where a pinned call goes, chosen here for the first of a minibatch; None: wherever there is room first."""
        home = self.members.holding(pin.instance)
        if home is None:
            able = [endpoint for endpoint in self.members.endpoints if endpoint.offers(self.needs)]
            home = self.slots.roomiest(able, self.avoid)
            if home is not None and home.client.offers("refs"):
                pin.move(home.instance)
        return home if home is not None and home.offers("refs") and home.offers(self.needs) else None

    # --- an attempt --------------------------------------------------------------------------------------------------

    async def _attempt(self, endpoint: Endpoint) -> Answered[T] | None:
        """Send once; None: it brought nothing, and what comes next is decided."""
        rests, again = endpoint.rests, self.repeat is not None
        try:
            replaced = await was_replaced(endpoint)
        except BaseException:
            self._release(endpoint)
            raise
        if replaced:
            self.members.recheck(endpoint, REPLACED, rests=rests)
            self._release(endpoint)
            return None
        try:
            call_id = await self.attempts.sent(endpoint.url, endpoint.instance, again=again)
        except BaseException:
            self._release(endpoint)
            raise
        self.repeat, self.sent_to, self.reached = None, endpoint.instance, self.reached and again
        idempotent = endpoint.client.offers("idempotency")
        try:
            answered = await self.send(endpoint.client, call_id if idempotent else None)
        except asyncio.CancelledError:
            self.attempts.ended("cancelled", examples=0)
            raise
        except (NoVerdict, ConnectionLost, BadResponse, Refused, RpcError) as caught:
            error = caught
        except BaseException:
            self.attempts.ended("error", examples=0)
            raise
        else:
            self._answered(endpoint, answered, rests)
            return answered
        finally:
            self._release(endpoint)
        commit = lacking(error)
        if commit is None or (endpoint.instance, commit) in self.brought:
            await self._failed(endpoint, error, rests, idempotent=idempotent)
        else:
            await self._bring(endpoint, commit, rests)
        return None

    async def _bring(self, endpoint: Endpoint, commit: str, rests: int) -> None:
        """The attempt ran nothing, for want of a commit; with it there the call is made anew."""
        try:
            await self.courier.bring(endpoint.client, commit)
        except (ConnectionLost, BadResponse, Refused, Overloaded) as error:
            await self._failed(endpoint, error, rests, idempotent=False)
        except RpcError as error:
            self._not_taken(endpoint, commit, error, rests)
        except BaseException:
            self.attempts.ended("refused", examples=0)
            raise
        else:
            self.brought.add((endpoint.instance, commit))
            self.members.accepted()
            self.attempts.ended("refused", examples=0)

    def _not_taken(self, endpoint: Endpoint, commit: str, error: RpcError, rests: int) -> None:
        """The endpoint refuses what leads to a commit, whatever its reason: another one may have room for it."""
        self.members.accepted()
        self.in_vain_s = 0.0
        self.attempts.ended("refused", examples=0)
        try:
            self._broken(endpoint, error, rests)
        except RpcError:
            words = f"{endpoint.url} does not take commit {commit[:SHOWN]}, and no other endpoint is left for it"
            raise Interrupted("paused", f"{words}: {summary(error)}") from error

    def _answered(self, endpoint: Endpoint, answered: Answered[T], rests: int) -> None:
        self.members.accepted()
        endpoint.answered(rests)
        if self.pin is not None and self.pin.instance == endpoint.instance:
            self.pin.settled = True
        self.attempts.ended(
            answered.outcome,
            seconds=answered.seconds,
            usage=answered.usage,
            examples=answered.examples,
            unpriced=answered.unpriced,
        )

    async def _failed(self, endpoint: Endpoint, error: Failure, rests: int, *, idempotent: bool) -> None:
        """Decide what comes next, waiting where that is part of it; raises what ends the call."""
        if isinstance(error, Overloaded):
            self._overloaded(endpoint, error, rests, idempotent=idempotent)
            return
        self.members.accepted()
        self.in_vain_s = 0.0
        if isinstance(error, ConnectionLost):
            self._lost(endpoint, error, rests, idempotent=idempotent)
        elif isinstance(error, NoVerdict):
            self.attempts.ended(
                error.outcome,
                seconds=error.seconds,
                usage=error.usage,
                examples=error.examples,
                unpriced=error.unpriced,
            )
            await self._back_off(endpoint, error, rests)
        elif isinstance(error, CallIdConflict) and self.reached:  # what an earlier process sent was another request
            self.attempts.ended("lost", examples=0)
        elif isinstance(error, CallNotFound):  # nobody knows what became of it, and nobody will
            self.attempts.ended("lost", examples=0)
            await self._back_off(endpoint, error, rests)
        else:
            self.attempts.ended("error", examples=0)
            if isinstance(error, BROKEN):
                self._broken(endpoint, error, rests)
            elif error.retryable:
                await self._back_off(endpoint, error, rests)
            else:
                if isinstance(error, TrajectoryExpired) and await is_replaced(endpoint):
                    self.members.recheck(endpoint, REPLACED, rests=rests)
                raise error

    def _overloaded(self, endpoint: Endpoint, error: Overloaded, rests: int, *, idempotent: bool) -> None:
        """It was not taken, which says nothing about the call."""
        if self.reached and idempotent:
            self.repeat = endpoint  # an earlier sending of the same attempt was taken
        else:
            self.attempts.ended("refused", examples=0)
        self.members.rest(endpoint, "overloaded", summary(error), rests=rests, asked_s=asked_pause_s(error))

    def _lost(self, endpoint: Endpoint, error: ConnectionLost, rests: int, *, idempotent: bool) -> None:
        """The attempt stays open where its process may still have the answer."""
        self.stops.check()  # what comes of a call that is not made again is no reason to stop for another
        self.reached = self.reached or error.sent
        if isinstance(error, InstanceChanged):
            self.members.recheck(endpoint, summary(error), rests=rests)
        else:
            self.members.rest(endpoint, "lost", summary(error), rests=rests)
        if error.refused:
            self.members.nobody_listens(endpoint)
        alive = not error.refused and not isinstance(error, InstanceChanged)
        if self.reached and idempotent and alive and (self.repeats < REPEATS or not self.slots.up):
            self.repeat = endpoint
            self.repeats += 1
        else:
            self.avoid = endpoint if alive else None  # a process that replaces another is as good as any
            self._give_up_attempt()
        if error.sent:
            self._count(error)

    def _broken(self, endpoint: Endpoint, error: BadResponse | Refused | RpcError, rests: int) -> None:
        """Raise the error, unless another endpoint may do better; each is tried before any counts a second time."""
        if isinstance(error, Unauthorized) and (news := self._news_of_token(endpoint)) is not None:
            self.members.recheck(endpoint, news, rests=rests)
            return
        renewed = endpoint.is_renewed_after(error)
        tried_before = endpoint in self.broken_at
        self.broken_at.add(endpoint)
        # What fails another call's program fails this one's too; junk may have passed since.
        hopeless = ("unreached",) if isinstance(error, JUNK) else ("unreached", "broken")
        able = (each for each in self.members.endpoints if each.offers(self.needs))
        others = any(each not in self.broken_at and each.rest not in hopeless for each in able)
        pinned = self.pin if self.pin is not None and self.pin.instance == endpoint.instance else None
        held = pinned is not None and pinned.settled and not isinstance(error, JUNK)
        if not renewed and (held or not others):
            raise error
        if pinned is not None and not renewed:
            pinned.move(None)
        self.avoid = endpoint
        self.members.rest(endpoint, "broken", summary(error), rests=rests)
        if tried_before:
            self._count(error)

    def _news_of_token(self, endpoint: Endpoint) -> str | None:
        """Why a refused token is no reason to give up: it was replaced, or its file is being; None where it is not."""
        try:
            return "its token is another now" if endpoint.read_token(self.members.on_token) else None
        except Refused as error:
            return summary(error)

    async def _back_off(self, endpoint: Endpoint, error: Exception, rests: int) -> None:
        """Wait, longer each time; then anywhere else, if there is anything else."""
        self.avoid = endpoint
        if endpoint.failed(rests) and self.slots.up > 1:  # alone it goes on: all that could be gained is a pause
            self.members.rest(endpoint, "failing", summary(error), rests=rests)
        self._count(error)
        growth = BACKOFF_FACTOR ** (self.failures - 1)
        await self.stops.pause(self.first_backoff_s * growth * _random.uniform(0.75, 1.25))

    def _count(self, error: Exception) -> None:
        self.failures += 1
        if self.failures >= self.max_attempts:
            lost = "server lost, " if isinstance(error, ConnectionLost) else ""
            raise Interrupted(
                "paused", f"{lost}{self.what}: no result after {self.failures} attempts; last error: {summary(error)}"
            ) from error

    # --- bookkeeping -------------------------------------------------------------------------------------------------

    def _give_up_attempt(self) -> None:
        self.attempts.ended("lost" if self.reached else "refused", examples=0)
        self.repeat, self.repeats, self.reached = None, 0, False

    def _release(self, endpoint: Endpoint) -> None:
        self.slots.release(endpoint)
        if endpoint.left:
            self.members.idle(endpoint)
