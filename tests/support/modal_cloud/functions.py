"""The functions of deployed apps: each container is a process that Modal's own entry point runs.

Inputs wait in a queue for each function. A container is started if those that run have no room for an input.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

Metadata = Mapping[str, str]
POLL_S = 5.0
END_S = 60.0
"""Seconds that containers may take to end after SIGINT, by which Modal ends them."""


@dataclass
class Call:
    """One call of a function.

    `body`: what it is sent as it runs; `more` is set with each part of it. `chunks`: what a generator has yielded; None
    follows the last. `done`: its outcome.
    """

    function_id: str
    item: api_pb2.FunctionGetInputsItem
    body: list[api_pb2.DataChunk] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    chunks: "asyncio.Queue[api_pb2.DataChunk | None]" = field(default_factory=asyncio.Queue)
    done: "asyncio.Future[api_pb2.FunctionPutOutputsItem]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def send(self, data: bytes) -> None:
        """Send it a message of ASGI."""
        self.body.append(api_pb2.DataChunk(data_format=api_pb2.DATA_FORMAT_ASGI, data=data, index=len(self.body) + 1))
        self.more.set()


class Functions:
    """The methods of `ModalClient` that callers and containers of functions use.

    `source`: the folder of the apps' modules. `variables`: of every container, besides its secrets. `secrets`: those
    that exist, by name.
    """

    url: str

    def __init__(self) -> None:
        self.functions: dict[str, api_pb2.Function] = {}
        self.secrets: dict[str, dict[str, str]] = {}
        self.web_urls: dict[str, str] = {}
        self.source: Path | None = None
        self.variables: dict[str, str] = {}
        self.calls: dict[str, Call] = {}
        self.containers: dict[str, list[subprocess.Popen[bytes]]] = {}
        self._waiting: dict[str, asyncio.Queue[Call]] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    # --- what tests use -----------------------------------------------------------------------------------------------

    def logs(self, name: str) -> str:
        """What the containers of a function have printed."""
        found = sorted(Path(self._folder.name).glob(f"{name}-*.log")) if self._folder else []
        return "\n".join(path.read_text(errors="replace") for path in found)

    def call(self, name: str, args: bytes, data_format: "api_pb2.DataFormat.ValueType") -> Call:
        """Call a function, with serialized arguments."""
        number = uuid.uuid4().hex
        item = api_pb2.FunctionGetInputsItem(
            input_id=f"in-{number}",
            function_call_id=f"fc-{number}",
            input=api_pb2.FunctionInput(args=args, data_format=data_format),
            function_call_invocation_type=api_pb2.FUNCTION_CALL_INVOCATION_TYPE_ASYNC,
        )
        call = self.calls[item.function_call_id] = Call(f"fu-{name}", item)
        self._queue(call.function_id).put_nowait(call)
        self._make_room(name)
        return call

    def lose_containers(self, name: str) -> None:
        """End those of a function as lost machines end: with all of their processes, and no word to any."""
        for container in self.containers.get(name, []):
            tree = tree_of(container.pid)
            for process in tree:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    async def end_containers(self) -> None:
        """End all as Modal does: SIGINT, and SIGKILL for those that take too long."""
        running = [each for started in self.containers.values() for each in started if each.poll() is None]
        for container in running:
            container.send_signal(signal.SIGINT)
        for container in running:
            try:
                await asyncio.to_thread(container.wait, END_S)
            except subprocess.TimeoutExpired:
                container.kill()
                await asyncio.to_thread(container.wait)
        for task in tuple(self._watching):
            task.cancel()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    # --- calls --------------------------------------------------------------------------------------------------------

    async def function_map(self, asked: api_pb2.FunctionMapRequest, _: Metadata) -> api_pb2.FunctionMapResponse:
        [given] = asked.pipelined_inputs
        call = self.call(asked.function_id.removeprefix("fu-"), given.input.args, given.input.data_format)
        taken = api_pb2.FunctionPutInputsResponseItem(idx=given.idx, input_id=call.item.input_id)
        return api_pb2.FunctionMapResponse(function_call_id=call.item.function_call_id, pipelined_inputs=[taken])

    async def function_get_outputs(
        self, asked: api_pb2.FunctionGetOutputsRequest, _: Metadata
    ) -> api_pb2.FunctionGetOutputsResponse:
        call = self.calls[asked.function_call_id]
        await asyncio.wait([call.done], timeout=asked.timeout)
        if not call.done.done():
            return api_pb2.FunctionGetOutputsResponse()
        given = call.done.result()
        item = api_pb2.FunctionGetOutputsItem(
            idx=0, input_id=given.input_id, result=given.result, data_format=given.data_format
        )
        return api_pb2.FunctionGetOutputsResponse(outputs=[item], last_entry_id="1-0")

    async def function_get_current_stats(
        self, asked: api_pb2.FunctionGetCurrentStatsRequest, _: Metadata
    ) -> api_pb2.FunctionStats:
        name = asked.function_id.removeprefix("fu-")
        return api_pb2.FunctionStats(
            backlog=self._queue(asked.function_id).qsize(),
            num_total_tasks=self._running(name),
            num_running_inputs=self._active(asked.function_id),
        )

    # --- containers ---------------------------------------------------------------------------------------------------

    async def container_hello(self, _: Empty, __: Metadata) -> Empty:
        return Empty()

    async def container_heartbeat(
        self, _: api_pb2.ContainerHeartbeatRequest, __: Metadata
    ) -> api_pb2.ContainerHeartbeatResponse:
        return api_pb2.ContainerHeartbeatResponse()

    async def function_get_inputs(
        self, asked: api_pb2.FunctionGetInputsRequest, _: Metadata
    ) -> api_pb2.FunctionGetInputsResponse:
        try:
            async with asyncio.timeout(POLL_S):
                call = await self._queue(asked.function_id).get()
        except TimeoutError:
            return api_pb2.FunctionGetInputsResponse()
        return api_pb2.FunctionGetInputsResponse(inputs=[call.item])

    async def function_put_outputs(self, asked: api_pb2.FunctionPutOutputsRequest, _: Metadata) -> Empty:
        for output in asked.outputs:
            for call in self.calls.values():
                if call.item.input_id == output.input_id and not call.done.done():
                    call.done.set_result(output)
                    call.chunks.put_nowait(None)
                    call.more.set()
        return Empty()

    async def function_call_get_data_in(
        self, asked: api_pb2.FunctionCallGetDataRequest, _: Metadata
    ) -> AsyncIterator[api_pb2.DataChunk]:
        call = self.calls[asked.function_call_id]
        sent = asked.last_index
        while not call.done.done():
            call.more.clear()
            for chunk in call.body[sent:]:
                sent = chunk.index
                yield chunk
            await call.more.wait()

    async def function_call_put_data_out(self, asked: api_pb2.FunctionCallPutDataRequest, _: Metadata) -> Empty:
        for chunk in asked.data_chunks:
            self.calls[asked.function_call_id].chunks.put_nowait(chunk)
        return Empty()

    async def task_result(self, _: api_pb2.TaskResultRequest, __: Metadata) -> Empty:
        return Empty()

    # --- secrets ------------------------------------------------------------------------------------------------------

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

    def _queue(self, function_id: str) -> "asyncio.Queue[Call]":
        return self._waiting.setdefault(function_id, asyncio.Queue())

    def _running(self, name: str) -> int:
        return sum(container.poll() is None for container in self.containers.get(name, []))

    def _active(self, function_id: str) -> int:
        of_it = sum(call.function_id == function_id and not call.done.done() for call in self.calls.values())
        return of_it - self._queue(function_id).qsize()

    def _make_room(self, name: str) -> None:
        function = self.functions[name]
        at_once = max(1, function.max_concurrent_inputs)
        wanted = self._queue(f"fu-{name}").qsize() + self._active(f"fu-{name}")
        if wanted > self._running(name) * at_once:
            self._start(name, function)

    def _start(self, name: str, function: api_pb2.Function) -> None:
        assert self.source is not None, "tests name the folder of the app's module"
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="modal-functions-")
        started = self.containers.setdefault(name, [])
        home = Path(self._folder.name) / f"{name}-{len(started)}"
        home.mkdir()
        layout = api_pb2.AppLayout(
            objects=[
                *(api_pb2.Object(object_id=each.object_id) for each in function.object_dependencies),
                *(
                    api_pb2.Object(object_id=f"fu-{each}", function_handle_metadata=self.handle(each))
                    for each in self.functions
                ),
            ],
            function_ids={each: f"fu-{each}" for each in self.functions},
        )
        arguments = api_pb2.ContainerArguments(
            task_id=f"ta-{home.name}",
            function_id=f"fu-{name}",
            app_id="ap-deployed",
            function_def=function,
            app_layout=layout,
            environment_name="main",
        )
        file = home / "arguments"
        file.write_bytes(arguments.SerializeToString())
        secrets = [self.secrets[each.removeprefix("st-")] for each in function.secret_ids]
        env = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "HOME": str(home),
            "TMPDIR": str(home),
            "PYTHONPATH": str(self.source),
            "PYTHONUNBUFFERED": "1",
            "MODAL_IS_REMOTE": "1",
            "MODAL_SERVER_URL": self.url,
            "MODAL_TASK_ID": arguments.task_id,
            "MODAL_CONTAINER_ARGUMENTS_PATH": str(file),
            "MODAL_DISABLE_API_PROXY": "1",
            **self.variables,
            **{key: value for secret in secrets for key, value in secret.items()},
        }
        with home.with_suffix(".log").open("wb") as log:
            command = [sys.executable, "-m", "modal._container_entrypoint"]
            started.append(
                subprocess.Popen(
                    command, env=env, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            )
        watching = asyncio.create_task(self._watch(name, started[-1]))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)

    async def _watch(self, name: str, container: "subprocess.Popen[bytes]") -> None:
        """Report the calls of a function as lost once none of its containers runs any more."""
        while container.poll() is None:  # noqa: ASYNC110  a process gives no event
            await asyncio.sleep(0.05)
        if self._running(name):
            return
        for call in self.calls.values():
            if call.function_id == f"fu-{name}" and not call.done.done():
                result = api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_INTERNAL_FAILURE)
                call.done.set_result(api_pb2.FunctionPutOutputsItem(input_id=call.item.input_id, result=result))
                call.chunks.put_nowait(None)
                call.more.set()

    def handle(self, name: str) -> api_pb2.FunctionHandleMetadata:
        """What the SDK keeps of a function."""
        function = self.functions[name]
        return api_pb2.FunctionHandleMetadata(
            function_name=name,
            function_type=function.function_type,
            web_url=self.web_urls.get(name, ""),
            app_id="ap-deployed",
        )


def tree_of(pid: int) -> list[int]:
    """Return a process and all of its descendants, which the kernel lists by the thread that started them."""
    found = [pid]
    with contextlib.suppress(OSError):  # it has ended meanwhile
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += tree_of(int(child))
    return found
