"""The task command router: what the SDK asks of a sandbox's machine itself, commands and their streams."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from grpclib import GRPCError, Status
from modal_proto import task_command_router_pb2 as router_pb2

from tests.support.modal_cloud.box import Box
from tests.support.modal_cloud.control import Control
from tests.support.modal_cloud.faults import Faults

Metadata = Mapping[str, str]


class Router:
    """The methods of `TaskCommandRouter`, for every sandbox of the cloud."""

    def __init__(self, control: Control, faults: Faults) -> None:
        self._control = control
        self._faults = faults

    async def task_exec_start(
        self, asked: router_pb2.TaskExecStartRequest, _: Metadata
    ) -> router_pb2.TaskExecStartResponse:
        await self._box(asked.task_id).start(asked)
        return router_pb2.TaskExecStartResponse()

    async def task_exec_stdin_write(
        self, asked: router_pb2.TaskExecStdinWriteRequest, _: Metadata
    ) -> router_pb2.TaskExecStdinWriteResponse:
        command = self._box(asked.task_id).command(asked.exec_id)
        await command.write(asked.data[max(0, command.written - asked.offset) :])
        if asked.eof:
            command.close_stdin()
        return router_pb2.TaskExecStdinWriteResponse()

    async def task_exec_stdio_read(
        self, asked: router_pb2.TaskExecStdioReadRequest, _: Metadata
    ) -> AsyncIterator[router_pb2.TaskExecStdioReadResponse]:
        command = self._box(asked.task_id).command(asked.exec_id)
        is_stdout = asked.file_descriptor == router_pb2.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT
        output, offset = command.stdout if is_stdout else command.stderr, asked.offset
        while data := await output.beyond(offset):
            offset += len(data)
            yield router_pb2.TaskExecStdioReadResponse(data=data)

    async def task_exec_wait(
        self, asked: router_pb2.TaskExecWaitRequest, _: Metadata
    ) -> router_pb2.TaskExecWaitResponse:
        command = self._box(asked.task_id).command(asked.exec_id)
        if self._faults.exec_never_ends:
            await asyncio.Event().wait()
        status = await asyncio.shield(command.ended)
        if status is None:
            raise GRPCError(Status.NOT_FOUND, f"task {asked.task_id} has ended")
        if status < 0:
            return router_pb2.TaskExecWaitResponse(signal=-status)
        return router_pb2.TaskExecWaitResponse(code=status)

    def _box(self, task_id: str) -> Box:
        for box in self._control.boxes.values():
            if box.task_id == task_id:
                box.check_runs()
                return box
        raise GRPCError(Status.NOT_FOUND, f"no task {task_id}")
