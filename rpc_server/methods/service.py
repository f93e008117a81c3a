"""A program as a service: call ledger, admission, datasets and method handlers in front of it, and its draining."""

import asyncio
import uuid

from evolverpc_common.installation import installed_version
from protocol import ServerInfo
from rpc_server.calls.admission import AdmissionController
from rpc_server.calls.ledger import CallLedger
from rpc_server.methods.code_methods import CommitMethods, MutationMethods
from rpc_server.methods.dataset_rows import Datasets
from rpc_server.methods.handlers import MethodHandlers
from rpc_server.methods.trace_store import TraceStore
from rpc_server.program.program import Program, ProgramRefs, combined_limits
from rpc_server.rpc.dispatch import Dispatcher
from rpc_server.settings.settings import Settings


class Service:
    """One instance in front of one program, which it neither opens nor closes."""

    def __init__(
        self,
        program: Program,
        settings: Settings,
        datasets: Datasets,
        *,
        commits: CommitMethods | None = None,
        mutations: MutationMethods | None = None,
    ) -> None:
        self.instance_id = uuid.uuid4().hex
        self._program = program
        self._drain_s = settings.drain_s
        self.limits = combined_limits(program.limits, settings)
        """The server's limits."""
        self._controller = AdmissionController(max_running=self.limits.max_concurrency, max_waiting=settings.max_queue)
        self._calls = CallLedger(
            self._controller,
            abandon_after_s=settings.abandon_after_s,
            keep_answers_s=settings.keep_answers_s,
            max_answer_bytes=settings.max_answer_bytes,
        )
        handlers = MethodHandlers(
            program,
            server=ServerInfo(
                name="gepa-server", version=installed_version(), language="python", instance_id=self.instance_id
            ),
            limits=self.limits,
            datasets=datasets,
            refs=ProgramRefs(self.instance_id)
            if "refs" in program.capabilities
            else TraceStore(instance_id=self.instance_id, max_bytes=settings.max_trace_bytes),
            controller=self._controller,
            calls=self._calls,
            commits=commits,
            mutations=mutations,
        )
        self.dispatcher = Dispatcher(handlers.table(), max_batch_entries=settings.max_batch_entries)

    @property
    def ready(self) -> bool:
        """True while new work is accepted."""
        return self._program.ready and not self._controller.draining

    async def drain(self) -> None:
        """Refuse new work; return when nothing runs and every result was collected, or after `drain_s`."""
        self._controller.draining = True
        try:
            async with asyncio.timeout(self._drain_s):
                while self._controller.calls or self._calls.uncollected:
                    self._controller.changed.clear()
                    await self._controller.changed.wait()
        except TimeoutError:
            return

    async def close(self) -> None:
        """Cancel calls that no connection holds."""
        await self._calls.close()
