"""What the control plane answers where an app with functions is deployed."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from google.protobuf.empty_pb2 import Empty
from modal_proto import api_pb2

from tests.support.modal_cloud.functions import Functions
from tests.support.modal_cloud.web import WebEndpoint

Metadata = Mapping[str, str]


class Deploying(Functions):
    """`functions`: what was deployed, by name. `endpoints`: of its web functions."""

    reachable: set[int]

    def __init__(self) -> None:
        super().__init__()
        self._disconnected = asyncio.Event()
        self.endpoints: dict[str, WebEndpoint] = {}

    async def app_get_by_deployment_name(
        self, _: api_pb2.AppGetByDeploymentNameRequest, __: Metadata
    ) -> api_pb2.AppGetByDeploymentNameResponse:
        return api_pb2.AppGetByDeploymentNameResponse()

    async def app_create(self, _: api_pb2.AppCreateRequest, __: Metadata) -> api_pb2.AppCreateResponse:
        self._disconnected.clear()
        return api_pb2.AppCreateResponse(app_id="ap-deployed")

    async def app_heartbeat(self, _: api_pb2.AppHeartbeatRequest, __: Metadata) -> Empty:
        return Empty()

    async def app_client_disconnect(self, _: api_pb2.AppClientDisconnectRequest, __: Metadata) -> Empty:
        self._disconnected.set()
        return Empty()

    async def app_get_logs(self, _: api_pb2.AppGetLogsRequest, __: Metadata) -> AsyncIterator[api_pb2.TaskLogsBatch]:
        """What the containers have printed, once the command that asks for it is done."""
        await self._disconnected.wait()
        printed = "\n".join(self.logs(name) for name in self.functions)
        item = api_pb2.TaskLogs(data=printed, file_descriptor=api_pb2.FILE_DESCRIPTOR_STDOUT)
        yield api_pb2.TaskLogsBatch(entry_id="1-0", items=[item])
        yield api_pb2.TaskLogsBatch(app_done=True)

    async def app_publish(self, _: api_pb2.AppPublishRequest, __: Metadata) -> api_pb2.AppPublishResponse:
        return api_pb2.AppPublishResponse(url="https://modal.example/app")

    async def volume_get_or_create(
        self, asked: api_pb2.VolumeGetOrCreateRequest, _: Metadata
    ) -> api_pb2.VolumeGetOrCreateResponse:
        return api_pb2.VolumeGetOrCreateResponse(volume_id=f"vo-{asked.deployment_name}")

    async def function_precreate(
        self, asked: api_pb2.FunctionPrecreateRequest, _: Metadata
    ) -> api_pb2.FunctionPrecreateResponse:
        return api_pb2.FunctionPrecreateResponse(function_id=f"fu-{asked.function_name}")

    async def function_create(
        self, asked: api_pb2.FunctionCreateRequest, _: Metadata
    ) -> api_pb2.FunctionCreateResponse:
        name = asked.function.function_name
        self.functions[name] = asked.function
        if asked.function.webhook_config.type and name not in self.endpoints:
            endpoint = self.endpoints[name] = WebEndpoint(self, name)
            await endpoint.open()
            self.reachable.add(endpoint.port)
        ranked = api_pb2.FunctionData.RankedFunction(rank=0, function=asked.function)
        return api_pb2.FunctionCreateResponse(
            function_id=f"fu-{name}",
            function=asked.function,
            handle_metadata=self.handle(name),
            function_data=api_pb2.FunctionData(function_name=name, ranked_functions=[ranked]),
        )
