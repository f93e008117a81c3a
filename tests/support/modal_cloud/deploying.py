"""What the control plane answers where an app with functions is deployed."""

from collections.abc import AsyncIterator, Mapping

from grpclib import GRPCError, Status
from modal_proto import api_pb2

Metadata = Mapping[str, str]


class Deploying:
    """`functions`: what was deployed, by name. `secrets`: those that exist, by name."""

    def __init__(self) -> None:
        self.functions: dict[str, api_pb2.Function] = {}
        self.secrets: dict[str, dict[str, str]] = {}

    async def app_get_logs(self, _: api_pb2.AppGetLogsRequest, __: Metadata) -> AsyncIterator[api_pb2.TaskLogsBatch]:
        yield api_pb2.TaskLogsBatch(app_done=True)

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
        return api_pb2.FunctionCreateResponse(
            function_id=f"fu-{name}",
            function=asked.function,
            handle_metadata=self.handle(name),
            function_data=self.data(name),
        )

    async def secret_get_or_create(
        self, asked: api_pb2.SecretGetOrCreateRequest, _: Metadata
    ) -> api_pb2.SecretGetOrCreateResponse:
        found = self.secrets.get(asked.deployment_name)
        if found is None:
            raise GRPCError(Status.NOT_FOUND, f"Secret '{asked.deployment_name}' not found in environment 'main'")
        if missing := [key for key in asked.required_keys if key not in found]:
            what = f"Secret '{asked.deployment_name}' is missing key(s): {', '.join(missing)}"
            raise GRPCError(Status.FAILED_PRECONDITION, what)
        return api_pb2.SecretGetOrCreateResponse(secret_id=f"st-{asked.deployment_name}")

    def data(self, name: str) -> api_pb2.FunctionData:
        """What is known of a function."""
        ranked = api_pb2.FunctionData.RankedFunction(rank=0, function=self.functions[name])
        return api_pb2.FunctionData(function_name=name, ranked_functions=[ranked])

    def handle(self, name: str) -> api_pb2.FunctionHandleMetadata:
        """What the SDK keeps of a function."""
        kind = self.functions[name].function_type
        return api_pb2.FunctionHandleMetadata(function_name=name, function_type=kind, app_id="ap-deployed")
