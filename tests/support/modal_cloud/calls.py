"""Calls of deployed functions: each is a process with the function's secrets, and no other variable of this one's."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from tests.support.modal_cloud import container
from tests.support.modal_cloud.deploying import Deploying

Metadata = Mapping[str, str]


@dataclass
class Call:
    """One call. `arguments`: as they were sent."""

    arguments: bytes
    process: "subprocess.Popen[bytes]"
    folder: "tempfile.TemporaryDirectory[str]"


class Calls(Deploying):
    """`app_file`: of the functions. `calls`: all that were made, by id. `reachable`: ports that sandboxes reach."""

    def __init__(self) -> None:
        super().__init__()
        self.app_file = Path()
        self.calls: dict[str, Call] = {}
        self.env: dict[str, str] = {}
        self.reachable: set[int] = set()

    async def function_get(self, asked: api_pb2.FunctionGetRequest, _: Metadata) -> api_pb2.FunctionGetResponse:
        if asked.object_tag not in self.functions:
            raise GRPCError(Status.NOT_FOUND, f"no function {asked.object_tag}")
        return api_pb2.FunctionGetResponse(
            function_id=f"fu-{asked.object_tag}",
            handle_metadata=self.handle(asked.object_tag),
            function=self.data(asked.object_tag),
        )

    async def function_map(self, asked: api_pb2.FunctionMapRequest, _: Metadata) -> api_pb2.FunctionMapResponse:
        [item] = asked.pipelined_inputs
        call_id = f"fc-{len(self.calls):022}"
        self.calls[call_id] = self._begun(asked.function_id.removeprefix("fu-"), item.input.args)
        taken = api_pb2.FunctionPutInputsResponseItem(idx=0, input_id=f"in-{call_id}")
        return api_pb2.FunctionMapResponse(function_call_id=call_id, pipelined_inputs=[taken])

    async def function_get_outputs(
        self, asked: api_pb2.FunctionGetOutputsRequest, _: Metadata
    ) -> api_pb2.FunctionGetOutputsResponse:
        status = self._call(asked.function_call_id).process.poll()
        if status is None:
            return api_pb2.FunctionGetOutputsResponse(num_unfinished_inputs=1)
        kinds = api_pb2.GenericResult
        kind = kinds.GENERIC_STATUS_FAILURE if status else kinds.GENERIC_STATUS_SUCCESS
        result = kinds(status=kind, exception=f"status {status}", data=b"" if status else container.NONE)
        output = api_pb2.FunctionGetOutputsItem(result=result, data_format=api_pb2.DATA_FORMAT_PICKLE)
        return api_pb2.FunctionGetOutputsResponse(outputs=[output])

    async def function_call_cancel(self, asked: api_pb2.FunctionCallCancelRequest, _: Metadata) -> Empty:
        self._call(asked.function_call_id).process.terminate()
        return Empty()

    async def tunnel_start(self, asked: api_pb2.TunnelStartRequest, _: Metadata) -> api_pb2.TunnelStartResponse:
        self.reachable.add(asked.port)
        return api_pb2.TunnelStartResponse(host="127.0.0.1", port=asked.port)

    async def tunnel_stop(self, asked: api_pb2.TunnelStopRequest, _: Metadata) -> api_pb2.TunnelStopResponse:
        self.reachable.discard(asked.port)
        return api_pb2.TunnelStopResponse(exists=True)

    def end_calls(self) -> None:
        """Kill what still runs."""
        for call in self.calls.values():
            call.process.kill()
            call.process.wait()
            call.folder.cleanup()

    def _begun(self, name: str, arguments: bytes) -> Call:
        secrets = [self.secrets[each.removeprefix("st-")] for each in self.functions[name].secret_ids]
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        folder = tempfile.TemporaryDirectory(prefix="modal-")
        own = {"TMPDIR": folder.name, "MODAL_IS_REMOTE": "1"}
        given = {key: text for each in (kept, self.env, *secrets, own) for key, text in each.items()}
        command = [sys.executable, container.__file__, self.app_file, name]
        process = subprocess.Popen(command, env=given, stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(arguments)
        process.stdin.close()
        return Call(arguments, process, folder)

    def _call(self, call_id: str) -> Call:
        if call_id not in self.calls:
            raise GRPCError(Status.NOT_FOUND, f"no call {call_id}")
        return self.calls[call_id]
