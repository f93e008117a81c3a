"""One attempt of a call at one endpoint, beside the calls that GEPA waits for, and how its end is written."""

from collections.abc import Sequence
from typing import Any, TypeVar

from gepa_client.errors import BadResponse, ConnectionLost, Refused
from gepa_client.fleet.endpoint import Endpoint
from gepa_client.transport.calls import AttemptLog, Call, FailedTry, Reply
from protocol.errors import RpcError

T = TypeVar("T")


async def attempt_once(endpoint: Endpoint, call: Call[T], log: AttemptLog) -> Reply[T]:
    """Send the call and write how it ended.

    Raises: what `RpcClient.send` raises.
    """
    call_id = await log.start(endpoint.url, endpoint.client.instance_id, repeat=False)
    try:
        reply = await endpoint.client.send(call, call_id if endpoint.client.offers("idempotency") else None)
    except BaseException as error:
        known = isinstance(error, BadResponse | Refused | RpcError)
        log.finish("lost" if isinstance(error, ConnectionLost) else "error" if known else "cancelled", examples=0)
        raise
    write_end(log, reply)
    return reply


def write_end(log: AttemptLog, reply: Reply[Any], failed: Sequence[FailedTry] = ()) -> None:
    """Write the end of an attempt that brought results; `failed`: the examples that are tried again."""
    log.finish(
        reply.outcome,
        seconds=reply.seconds,
        usage=reply.usage,
        examples=reply.examples,
        unpriced=reply.unpriced,
        failed=failed,
    )
