"""Calls to one server: a deadline for every call, typed errors, finished work collected and not repeated."""

import asyncio
import contextlib
import itertools
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import orjson

from gepa_client.errors import ClientError, ConnectionLost, InstanceChanged, Refused
from gepa_client.transport.address import Address, refused, rpc_url
from gepa_client.transport.calls import Call, Reply, evaluation_timeout_s
from gepa_client.transport.http_transport import CONNECT_TIMEOUT_S, HttpTransport
from gepa_client.transport.responses import example_results, is_pending, result_of, validated
from protocol import CURRENT_VERSION, METHODS, Candidate, DiscoverResult, EvaluateResult, JsonValue, Pending, Progress
from protocol.errors import Overloaded, RpcError, Unauthorized, VersionNotSupported

T = TypeVar("T")

RUN_EXAMPLES = ("evaluate", "score")
"""Methods that run examples."""

RESENDS = 3
FIRST_PAUSE_S = 0.1
CANCEL_TIMEOUT_S = 2.0
ANSWER_GRACE_S = 15.0
"""Seconds beyond `wait_s` that a server may take to write `pending` before the connection counts as lost."""

LONG_SILENCE_S = 5.0
"""Seconds without an answer after which a connection was not cut by an accident of the moment."""

WATCHED_S = 1.0
"""Seconds between two requests for the progress of a call."""


class RpcClient:
    """Calls one server. Open it with `async with`; all calls share one HTTP session and may overlap.

    `url`: with or without `/rpc`, or an `Address` with the credentials. `token`: else from `token_file`, else from the
    environment (`GEPA_TOKEN`). `timeout_s`: deadline in seconds of a call that is not given its own.
    `wait_s`: how long one request waits for a call before the server answers `pending` (capability `async`), which the
    client then follows up by itself. `max_response_bytes`: of one answer; a larger one is refused, as thousands may be
    on their way at once. `example_timeout_s`: the contract's `_meta.example_timeout_s` of calls that run examples, for
    servers with the capability `example_timeout`.
    `in_fleet`: the caller calls `read_token` before any call, and may have somewhere else to go: a connection that is
    refused, or that stayed silent for long, is not tried again here, as one that is lost is.

    Raises:
        Refused: the address or the token cannot be used; see `gepa_client.transport.address`.
    """

    def __init__(
        self,
        url: str | Address,
        *,
        token: str | None = None,
        token_file: Path | str | None = None,
        timeout_s: float = 60.0,
        wait_s: float = 20.0,
        allow_insecure: bool = False,
        max_response_bytes: int = 64 * 2**20,
        example_timeout_s: float | None = None,
        in_fleet: bool = False,
    ) -> None:
        given = url if isinstance(url, Address) else Address(url, token, token_file, allow_insecure=allow_insecure)
        self.address = given
        self.url = rpc_url(given.url, allow_insecure=given.allow_insecure)
        self.timeout_s = timeout_s
        self.wait_s = wait_s
        self.example_timeout_s = example_timeout_s
        self.discovery: DiscoverResult | None = None
        self._poster = HttpTransport(self.url, max_response_bytes)
        self._when_refused = refused(given.token, given.token_file)
        self._in_fleet = in_fleet
        self._ids = itertools.count(1)
        self._random = random.SystemRandom()  # GEPA's runs depend on the global generator: leave it alone
        if not in_fleet:
            self.read_token()

    def __repr__(self) -> str:
        return f"RpcClient({self.url!r})"

    async def __aenter__(self) -> Self:
        self._poster.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the session; safe to call twice."""
        await self._poster.close()

    def read_token(self, on_token: Callable[[str], None] = lambda _token: None) -> bool:
        """Read the tokens from their sources; True if one has changed, as after a restart of the server.

        `on_token`: called with each before it is used.

        Raises:
            Refused: a file cannot be read, or holds no usable token; the earlier tokens stay in use.
        """
        tokens = self.address.tokens()
        for found in filter(None, tokens):
            on_token(found)
        return self._poster.use_token(*tokens)

    async def cut(self, why: str) -> None:
        """End every call in flight as lost, and refuse further ones: the server is gone for good."""
        await self._poster.cut(why)

    def offers(self, capability: str) -> bool:
        """Whether the last `discover` named this capability; False before the first."""
        return self.discovery is not None and capability in self.discovery.capabilities

    @property
    def instance_id(self) -> str | None:
        """The server process that answered the last `discover`."""
        return self.discovery.server.instance_id if self.discovery is not None else None

    def new_call_id(self) -> str | None:
        """Return an id for a call that may be sent again; None if the server takes none."""
        return uuid.uuid4().hex if self.offers("idempotency") else None

    # --- calls ---------------------------------------------------------------------------------------------------

    async def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
        wait_s: float | None = None,
        group: str | None = None,
        timeout_s: float | None = None,
        resends: int = RESENDS,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> JsonValue:
        """Make one call and return its result, unvalidated.

        A lost connection is tried again where that can do no harm: the method is idempotent, the request never left,
        or a `call_id` lets the server answer what it already knows. `pending` answers are followed until the deadline.
        `resends` at most. `on_progress` is called with how far the call is, about once a second while it is `pending`.
        Cancelling the coroutine cancels the call on the server, where it can.

        Raises:
            RpcError: the server's own error. ConnectionLost, BadResponse, Refused: see `gepa_client.errors`.
        """
        params = params if params is None or self.offers("untyped_rows") else _as_typed(params)
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        if wait_s is None and call_id is not None and self.offers("async"):
            wait_s = self.wait_s if on_progress is None else WATCHED_S
        meta = {"call_id": call_id, "wait_s": wait_s, "group": group}
        if method in RUN_EXAMPLES and self.offers("example_timeout"):
            meta["example_timeout_s"] = self.example_timeout_s
        instance = self.instance_id if call_id is not None else None
        try:
            asked = time.monotonic()
            answer = await self._until_answered(method, params or {}, meta, deadline, instance, resends)
            while call_id is not None and method in METHODS and method != "get_result" and is_pending(answer):
                if time.monotonic() >= deadline:
                    raise ConnectionLost(f"{method} was still running after {limit_s:g} s")
                if time.monotonic() - asked < FIRST_PAUSE_S:
                    await asyncio.sleep(FIRST_PAUSE_S)  # a server that does not wait must not be asked without end
                if on_progress is not None:
                    on_progress(validated(Pending, answer).pending.progress)
                asked = time.monotonic()
                patience = self.wait_s if on_progress is None else WATCHED_S
                collect = {"call_id": call_id, "wait_s": min(patience, max(deadline - time.monotonic(), 0.0))}
                answer = await self._until_answered("get_result", collect, {}, deadline, instance, resends)
        except asyncio.CancelledError:
            if call_id is not None and self.offers("cancel"):
                with contextlib.suppress(ClientError, RpcError):
                    await self._post("cancel", {"call_id": call_id}, {}, time.monotonic() + CANCEL_TIMEOUT_S)
            raise
        return answer

    async def _until_answered(
        self,
        method: str,
        params: Mapping[str, Any],
        meta: dict[str, Any],
        deadline: float,
        instance: str | None,
        resends: int,
    ) -> JsonValue:
        """Send the request, again where the outcome is unknown and a repetition is harmless.

        `instance`: the process that the call started with and that alone knows its `call_id`; None without a `call_id`.
        """
        known = METHODS.get(method)
        harmless = meta.get("call_id") is not None or (known is not None and known.idempotent)
        sent = False
        for resend in itertools.count():
            asked = time.monotonic()
            try:
                return await self._post(method, params, meta, deadline)
            except ConnectionLost as lost:
                hopeless = lost.refused or time.monotonic() - asked > LONG_SILENCE_S
                sent = lost.sent = sent or lost.sent  # of all that were sent: one of them may have run
                pause = FIRST_PAUSE_S * 2**resend * self._random.uniform(0.5, 1.5)
                if (
                    resend >= resends
                    or time.monotonic() + pause >= deadline
                    or (sent and not harmless)
                    or (hopeless and self._in_fleet)
                ):
                    raise
                await asyncio.sleep(pause)
                if instance is not None and sent:
                    await self._check_instance(instance)
        raise AssertionError("unreachable")

    async def _check_instance(self, instance: str) -> None:
        """Make sure the process that knows our `call_id` still answers; silence gets the benefit of the doubt."""
        if self.instance_id == instance:  # otherwise another call found out already
            with contextlib.suppress(ConnectionLost, Overloaded):
                await self.discover(timeout_s=CONNECT_TIMEOUT_S, resends=0)
        if self.instance_id != instance:
            raise InstanceChanged(f"the server was replaced: instance {instance} is gone")

    async def _post(self, method: str, params: Mapping[str, Any], meta: dict[str, Any], deadline: float) -> JsonValue:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise ConnectionLost(f"{method} was not answered by its deadline", sent=False)
        wait_s = meta.get("wait_s") if method != "get_result" else params.get("wait_s")
        timeout_s = remaining if wait_s is None else min(remaining, wait_s + ANSWER_GRACE_S)
        if wait_s is not None and wait_s > remaining and method != "get_result":
            meta = meta | {"wait_s": remaining}
        known = {key: value for key, value in meta.items() if value is not None}
        request_id = next(self._ids)
        request = {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": method,
            "params": {"_meta": {"protocol_version": CURRENT_VERSION, **known}, **params},
        }
        try:
            body = orjson.dumps(request)
        except TypeError as error:
            raise Refused(f"the params of {method} cannot be written as JSON: {error}") from error
        exchange = await self._poster.post(body, timeout_s)
        try:
            return result_of(exchange, request_id)
        except Unauthorized as error:
            if error.details:  # not the token: a foreign Host or Origin
                raise
            raise Unauthorized(self._when_refused) from error

    async def send(self, call: Call[T], call_id: str | None = None) -> Reply[T]:
        """Make one call that is given as data.

        Raises: as `call`, and what the call's `parse` raises.
        """
        if call.on_sent is not None:
            call.on_sent()
        began = time.monotonic()
        try:
            answer = await self.call(
                call.method,
                await self._params(call),
                call_id=call_id,
                group=call.group if self.offers("refs") else None,
                timeout_s=(evaluation_timeout_s(self.example_limit_s, len(call.rows)) if call.rows else call.timeout_s),
                on_progress=call.on_progress,
            )
            reply = call.parse(answer)
        except (ClientError, RpcError) as error:
            recovered = call.parse_error(error, time.monotonic() - began) if call.parse_error is not None else None
            if recovered is None:
                raise
            reply = recovered
        reply.instance = self.instance_id
        return reply

    async def _params(self, call: Call[T]) -> Mapping[str, Any]:
        """Return the params for this server: without optional ones that it does not understand."""
        if not call.optional and call.instance_params is None:
            return call.params
        unknown = {name for name, capability in call.optional.items() if not self.offers(capability)}
        params = {name: value for name, value in call.params.items() if name not in unknown}
        if call.instance_params is not None:
            if self.offers("adapter_state"):
                await self.discover()  # another process, without the state, may have started since the last call
            params |= call.instance_params(self.instance_id)
        return params

    @property
    def example_limit_s(self) -> float | None:
        """After how many seconds the server ends an example; None if nothing limits it."""
        own_s = self.discovery.limits.example_timeout_s if self.discovery is not None else None
        if own_s is None or self.example_timeout_s is None:
            return self.example_timeout_s if own_s is None else own_s
        return min(own_s, self.example_timeout_s)

    # --- typed calls -----------------------------------------------------------------------------------------------

    async def discover(self, *, timeout_s: float | None = None, resends: int = RESENDS) -> DiscoverResult:
        """Describe server and program; the answer is kept in `discovery`.

        Raises:
            VersionNotSupported: the server speaks none of the versions this client speaks.
        """
        answer = await self.call("discover", timeout_s=timeout_s, resends=resends)
        discovery = validated(DiscoverResult, answer)
        if CURRENT_VERSION not in discovery.protocol_versions:
            raise VersionNotSupported(supported=discovery.protocol_versions, requested=CURRENT_VERSION)
        self.discovery = discovery
        return discovery

    async def evaluate(
        self,
        candidate: Candidate,
        batch: Sequence[Mapping[str, Any]],
        *,
        capture_traces: bool = False,
        call_id: str | None = None,
        group: str | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Evaluate examples given as they go over the wire; the result as JSON, validated, one entry per example.

        A result whose score is too large is a failure of its example; see `responses`.
        """
        params = {"candidate": candidate, "batch": list(batch), "capture_traces": capture_traces}
        answer = await self.call("evaluate", params, call_id=call_id, group=group, timeout_s=timeout_s)
        return {"results": example_results(EvaluateResult, answer, len(batch))}


def _as_typed(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the params for a server that does not know `untyped` of examples."""
    given = params.get("eval_batch", params)
    if not any(example.get("untyped") for example in given.get("batch", ())):
        return params
    batch = [{name: part for name, part in example.items() if name != "untyped"} for example in given["batch"]]
    return {**params, "batch": batch} if given is params else {**params, "eval_batch": {**given, "batch": batch}}
