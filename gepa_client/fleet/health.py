"""Whether, after a silence, the process that was let in still answers: nothing else tells that it was replaced."""

import asyncio
import time

from gepa_client.errors import ClientError
from gepa_client.fleet.endpoint import Endpoint
from protocol.errors import RpcError

SILENCE_S = 1.0
"""Seconds without an answer in which a server may have been stopped and another one started."""

ASK_TIMEOUT_S = 5.0

REPLACED = "another process answers there now; its traces are gone"


async def was_replaced(endpoint: Endpoint) -> bool:
    """Ask once for all calls that are about to be sent after a silence.

    An endpoint that does not answer is not judged here: the call finds out, and there are rules for that.
    """
    if time.monotonic() - endpoint.heard < SILENCE_S:
        return False
    return await is_replaced(endpoint)


async def is_replaced(endpoint: Endpoint) -> bool:
    """Ask at once, whenever it was last heard of."""
    if endpoint.asking is None:
        endpoint.asking = asyncio.create_task(_ask(endpoint))
    return await asyncio.shield(endpoint.asking)


async def _ask(endpoint: Endpoint) -> bool:
    known = endpoint.instance
    try:
        discovery = await endpoint.client.discover(timeout_s=ASK_TIMEOUT_S, resends=0)
    except (ClientError, RpcError):
        return False
    finally:
        endpoint.asking = None
    endpoint.heard = time.monotonic()
    return discovery.server.instance_id != known
