"""An endpoint that has left the fleet: it finishes what it has, unless nobody is there any more to finish it."""

import asyncio

from gepa_client.errors import ClientError, ConnectionLost
from gepa_client.fleet.endpoint import Endpoint
from protocol.errors import RpcError

LOOK_S = 0.5
"""Between two looks."""

ASK_TIMEOUT_S = 2.0

SILENT = 2
"""Looks without an answer, one after the other, that end it; a refused connection does at once."""


async def see_off(endpoint: Endpoint) -> None:
    """Until its last call has ended. With its process gone those that are left are lost at once, to go elsewhere.

    A connection may stay open, or be made anew, without the process behind it: where somebody stands before it, or
    holds its socket.
    """
    silent = 0
    while endpoint.in_flight:
        try:
            discovery = await endpoint.client.discover(timeout_s=ASK_TIMEOUT_S, resends=0)
        except ConnectionLost as lost:
            silent = SILENT if lost.refused else silent + 1
        except ClientError:  # something speaks, but it is not the server
            silent += 1
        except RpcError:
            silent = 0
        else:
            silent = 0 if discovery.server.instance_id == endpoint.instance else SILENT
        if silent >= SILENT:
            endpoint.client.cut(f"{endpoint.url} has left the fleet, and nobody answers there")
            return
        await asyncio.sleep(LOOK_S)
