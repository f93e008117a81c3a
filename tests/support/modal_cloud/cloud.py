"""A Modal on loopback: its servers, everything that was asked of it, and its end."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import modal
from grpclib import GRPCError, Status
from grpclib.protocol import H2Protocol
from grpclib.server import Server
from modal._utils.grpc_utils import custom_detail_codec
from modal_proto.api_grpc import ModalClientBase
from modal_proto.api_pb2 import CLIENT_TYPE_CONTAINER, GenericResult
from modal_proto.task_command_router_grpc import TaskCommandRouterBase

from tests.support.loops import in_a_thread
from tests.support.modal_cloud.box import Box
from tests.support.modal_cloud.control import Control
from tests.support.modal_cloud.faults import Faults
from tests.support.modal_cloud.router import Router
from tests.support.modal_cloud.serving import Asked, serving

TOKEN = ("ak-loopback", "as-loopback")


class _Server(Server):
    """As it is, only that its connections end with it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections: list[H2Protocol] = []

    def _protocol_factory(self) -> H2Protocol:
        self._connections.append(super()._protocol_factory())
        return self._connections[-1]

    async def end(self) -> None:
        """Nothing is answered any more."""
        self.close()
        await self.wait_closed()
        for protocol in self._connections:
            if hasattr(protocol, "connection"):  # it was made
                protocol.connection.close()
        await asyncio.sleep(0)  # a transport closes its socket in the loop's next turn


class Cloud:
    """What tests see of it. `control`: its apps, images and what was published.

    `asked`: every RPC of the control plane and the command router, in order.
    """

    def __init__(self) -> None:
        self.faults = Faults()
        self.asked: list[Asked] = []
        self.env: dict[str, str] = {}
        self.control = Control(self.faults)
        self._router = Router(self.control, self.faults)

    @property
    def boxes(self) -> Sequence[Box]:
        """Every sandbox that was ever made, in order."""
        return list(self.control.boxes.values())

    @property
    def running(self) -> list[str]:
        """Those that have not ended."""
        return [box.id for box in self.boxes if not box.ended.done()]

    def box(self, sandbox_id: str) -> Box:
        """One of them."""
        return self.control.boxes[sandbox_id]

    def reach(self, port: int) -> None:
        """What listens at this port of loopback is the internet: reached where a sandbox's egress has 127.0.0.1."""
        self.control.reachable.add(port)

    def expire_connect_tokens(self) -> None:
        """None that was given out until now is good any more."""
        for front in self.control.fronts.values():
            front.tokens.clear()

    def count(self, method: str) -> int:
        """How often this RPC was called."""
        return sum(asked.method == method for asked in self.asked)

    def kill(self, sandbox_id: str) -> None:
        """Have the machine of one die; for threads beside the cloud's own."""
        died = self.box(sandbox_id).end(GenericResult.GENERIC_STATUS_FAILURE, 137)
        asyncio.run_coroutine_threadsafe(died, self._loop).result(30)

    async def open(self) -> _Server:
        """Start to answer."""
        self._loop = asyncio.get_running_loop()
        server = _Server(
            [
                serving(ModalClientBase, self.control, check=self._check, faults=self.faults),
                serving(TaskCommandRouterBase, self._router, check=self.asked.append, faults=self.faults),
            ],
            status_details_codec=custom_detail_codec,
        )
        await server.start("127.0.0.1", 0)
        port = server._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]  # grpclib has no public way to it
        self.control.url = f"http://127.0.0.1:{port}"
        self.env = {
            "MODAL_SERVER_URL": self.control.url,
            "MODAL_TOKEN_ID": TOKEN[0],
            "MODAL_TOKEN_SECRET": TOKEN[1],
            "MODAL_DISABLE_API_PROXY": "1",
        }
        self.control.env = {"MODAL_SERVER_URL": self.control.url, "MODAL_DISABLE_API_PROXY": "1"}
        return server

    async def close(self) -> None:
        """End all that is left."""
        self.control.end_calls()
        await asyncio.gather(*(front.close() for front in self.control.fronts.values()))
        await asyncio.gather(*(box.close() for box in self.boxes))

    def _check(self, asked: Asked) -> None:
        self.asked.append(asked)
        if asked.metadata.get("x-modal-client-type") == str(CLIENT_TYPE_CONTAINER):
            return
        if (asked.metadata.get("x-modal-token-id"), asked.metadata.get("x-modal-token-secret")) != TOKEN:
            raise GRPCError(Status.UNAUTHENTICATED, "no such token")


@contextlib.asynccontextmanager
async def _served() -> AsyncIterator[Cloud]:
    cloud = Cloud()
    server = await cloud.open()
    try:
        yield cloud
    finally:
        await cloud.close()
        await server.end()


@contextlib.asynccontextmanager
async def loopback_modal() -> AsyncIterator[Cloud]:
    """One that the SDK of this process talks to while the block runs; nothing of it is left afterwards."""
    async with _served() as cloud:
        with _environment(cloud.env):
            try:
                yield cloud
            finally:
                await (await modal.Client.from_env.aio()).close.aio()


def loopback_modal_beside() -> contextlib.AbstractContextManager[Cloud]:
    """The same in a thread, for other processes that are given `cloud.env`."""
    return in_a_thread(_served())


@contextlib.contextmanager
def found_by_this_process(cloud: Cloud) -> Iterator[None]:
    """Let commands in this process use a cloud of a thread while the block runs.

    The SDK keeps one client for the process: without its end here, the next cloud would be looked for at this address.
    """
    with _environment(cloud.env):
        try:
            yield
        finally:
            modal.Client.from_env().close()


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
