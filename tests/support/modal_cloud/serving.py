"""Serves the RPCs of Modal's own stubs by methods of a plain object: `SandboxCreateV2` by `sandbox_create_v2`."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from grpclib import GRPCError, Status
from grpclib.server import Stream
from modal_proto import api_pb2

from tests.support.modal_cloud.faults import Faults

ENVIRONMENT = api_pb2.EnvironmentMetadata(
    name="main", settings=api_pb2.EnvironmentSettings(image_builder_version="2025.06")
)
ANSWERS: Mapping[str, Message] = {
    "ClientHello": api_pb2.ClientHelloResponse(),
    "EnvironmentGetOrCreate": api_pb2.EnvironmentGetOrCreateResponse(
        environment_id="en-loopback", metadata=ENVIRONMENT
    ),
    "AppGetByDeploymentName": api_pb2.AppGetByDeploymentNameResponse(),
    "AppCreate": api_pb2.AppCreateResponse(app_id="ap-deployed"),
    "MountBatchedCheckExistence": api_pb2.MountBatchedCheckExistenceResponse(),  # no file needs to be sent
    "AppHeartbeat": Empty(),
    "AppClientDisconnect": Empty(),
    "AppPublish": api_pb2.AppPublishResponse(url="https://modal.example/app"),
}
"""By RPC: the same answer each time."""


@dataclass(frozen=True)
class Asked:
    """One RPC as it came in. `metadata`: its headers."""

    method: str
    message: Any
    metadata: Mapping[str, str]


Check = Callable[[Asked], None]


def serving(base: type, handler: object, *, check: Check, faults: Faults) -> Any:
    """An instance of the servicer `base`; what `handler` has no method for is answered UNIMPLEMENTED.

    A method takes the request and its metadata, and returns the answer, or yields the answers of a stream. `check` sees
    every request first, and may raise.
    """

    def method(name: str) -> Callable[[Any, Stream[Any, Message]], Awaitable[None]]:
        handling = getattr(handler, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower(), None)

        async def called(_: object, stream: Stream[Any, Message]) -> None:
            if handling is None and name not in ANSWERS:
                raise GRPCError(Status.UNIMPLEMENTED, f"the loopback Modal has no {name}")
            asked = Asked(name, await stream.recv_message(), dict(stream.metadata or {}))
            check(asked)
            faults.check(name, done=False)
            if handling is None:
                await stream.send_message(ANSWERS[name])
            elif inspect.isasyncgenfunction(handling):
                async for answer in handling(asked.message, asked.metadata):
                    await stream.send_message(answer)
            else:
                answer = await handling(asked.message, asked.metadata)
                faults.check(name, done=True)
                await stream.send_message(answer)

        return called

    names = base.__abstractmethods__  # type: ignore[attr-defined]  # of a class with the metaclass ABCMeta
    return type(base.__name__, (base,), {name: method(name) for name in names})()
