"""What happens in a session of sandboxes: messages for the main thread, and how the user and the driver read them."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from gepa_client.journal.run_events import CallRefused
from gepa_client.run.control_messages import GatewayMessage, ModelCallMessage
from gepa_client.run.output_folder import HostTotals
from gepa_client.sandboxing.session_interface import SWEEP, Log
from sandbox_runtime.gateway import GatewayEvent, GatewayRefusal, HostConnection, ProviderCall
from sandbox_runtime.pool import PoolEvent


@dataclass(frozen=True)
class SessionFailed:
    """There is no sandbox, and there will be none, because of `error`."""

    error: BaseException


SessionMessage = Log | SessionFailed | PoolEvent | GatewayEvent

ENVIRONMENT = "environment"
"""The name of a build at its gateway."""

CONNECTIONS_KEPT = 10_000
"""Connections that are kept one by one; further ones are counted only, as programs decide how many there are."""

HOSTS_KEPT = 200
OTHERS = "others"
"""The name of all hosts beyond `HOSTS_KEPT`."""


class ConnectionLog:
    """The connections of a session to allowed hosts: the first one by one, all of them by host."""

    def __init__(self) -> None:
        self.first: list[HostConnection] = []
        self.by_host: dict[str, HostTotals] = {}

    def add(self, connection: HostConnection) -> None:
        """Count a connection that has ended, if it is of a program."""
        if connection.sandbox == ENVIRONMENT:
            return
        if len(self.first) < CONNECTIONS_KEPT:
            self.first.append(connection)
        name = f"{connection.host}:{connection.port}"
        if name not in self.by_host and len(self.by_host) >= HOSTS_KEPT:
            name = OTHERS
        totals = self.by_host.setdefault(name, HostTotals())
        totals.connections += 1
        totals.failed += not connection.reached
        totals.sent += connection.sent
        totals.received += connection.received

    def lines(self) -> Iterator[str]:
        """Yield JSON lines: the first connections, then the totals of each host."""
        for connection in self.first:
            yield json.dumps({"connection": asdict(connection)})
        for name, totals in self.by_host.items():
            yield json.dumps({"host": name, **asdict(totals)})


def control_message(event: ProviderCall | GatewayRefusal) -> GatewayMessage:
    """Return the message to the driver about an event of the gateway."""
    if isinstance(event, GatewayRefusal):
        return CallRefused(**asdict(event))
    tokens = event.tokens
    counts = {} if tokens is None else {"input_tokens": tokens.all_input, "output_tokens": tokens.output}
    return ModelCallMessage.model_validate({**asdict(event), **counts})


def pool_log(event: PoolEvent) -> Log | None:
    """Return the line about an event of the pool; None if the user needs none."""
    ready = f"{event.ready} of {event.wanted} ready"
    match event.kind:
        case "ready" if event.ready == event.wanted > 1:
            return Log(f"all {event.ready} sandboxes are ready, {event.elapsed_s:.1f} s after the first start began")
        case "died":
            return Log(f"sandbox {event.id or ''} has ended ({event.detail}) and is replaced; {ready}", is_warning=True)
        case "failed":
            later = f"; next attempt in {event.seconds:.0f} s" if event.seconds else ""
            return Log(f"a sandbox could not be started: {event.detail}{later}", is_warning=True)
        case "unasked":
            text = f"sandbox {event.id or ''} refuses its token, and no new one is available: {event.detail}"
            return Log(text, is_warning=True)
        case "not_freed":
            which = "not all sandboxes" if event.id is None else f"not all of sandbox {event.id}"
            return Log(
                f"{which} could be freed: {event.detail}; `{SWEEP}` on its machine ends what is left", is_warning=True
            )
        case "shrinks":
            return Log(f"there is work for fewer sandboxes: {event.wanted} stay")
        case "grows":
            return Log(f"there is work for more sandboxes: {event.wanted} are wanted")
        case _:
            return None


def refusal_log(refusal: GatewayRefusal) -> Log:
    """Return the line about a refused connection or model call."""
    return Log(f"refused: {refusal.what} of {refusal.sandbox}: {refusal.reason}", is_warning=True)
