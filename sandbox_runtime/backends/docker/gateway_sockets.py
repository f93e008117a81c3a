"""Let a gateway session answer a container, by sockets of this machine that only this user reaches."""

import socket
from collections.abc import Mapping
from contextlib import ExitStack

from sandbox_runtime.api.egress import MODELS_PORT, TUNNEL_PORT, GatewaySession
from sandbox_runtime.backends.local_steps import BACKLOG
from sandbox_runtime.backends.records import SandboxRecord

MODELS, TUNNEL = "models", "tunnel"
"""The names of the sockets in a sandbox's folder of sockets."""


async def answer(session: GatewaySession | None, record: SandboxRecord) -> Mapping[str, str]:
    """Let a session answer the container of a record; return the variables by which programs find it. Raises OSError.

    The container carries connections to `MODELS_PORT` and `TUNNEL_PORT` of its own loopback to these sockets.
    """
    if session is None:
        return {}
    with ExitStack() as stack:
        models, tunnel = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        for listening, name in ((models, MODELS), (tunnel, TUNNEL)):
            listening.bind(str(record.sockets / name))
            listening.listen(BACKLOG)
        await session.serve(models, tunnel)
        stack.pop_all()
    return session.env(f"http://127.0.0.1:{MODELS_PORT}", f"http://127.0.0.1:{TUNNEL_PORT}")
