"""The works of one shared process, and the sandboxes that wait for further ones."""

import asyncio
import os
import traceback
from collections.abc import Callable
from typing import TextIO

from evolverpc_common.network_addresses import parse_networks
from gepa_service.jobs.ended_by import ENDING, STOPPED, ended_by
from gepa_service.jobs.process_main import LOG
from gepa_service.jobs.program_work import work_on_program
from gepa_service.jobs.warm_sandboxes import WarmSandboxes
from gepa_service.jobs.work_order import REQUESTS, Begin, Ended, EndWarm, Message, ProgramOrder, Reported


class ProcessWorks:
    """Carries out the orders of lines, in one event loop. `report`: takes lines of JSON."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._warm: WarmSandboxes | None = None
        self._works: dict[str, asyncio.Task[None]] = {}

    def take(self, line: bytes) -> None:
        """Begin or stop a work, or end the sandboxes that wait, as a line requests."""
        request = REQUESTS.validate_json(line)
        if isinstance(request, Begin):
            assert isinstance(request.order, ProgramOrder), "an optimization has a process of its own"  # noqa: S101
            name = request.order.folder.name
            task = self._works[name] = asyncio.create_task(self._work(request.order), name=name)
            task.add_done_callback(self._ended_task)
        elif isinstance(request, EndWarm):
            if self._warm is not None:
                self._warm.end()
        elif (work := self._works.get(request.work)) is not None and not work.cancelling():
            work.cancel()

    def _ended_task(self, task: asyncio.Task[None]) -> None:
        del self._works[task.get_name()]
        if task.cancelled():  # before it had begun
            self._report(Reported(work=task.get_name(), message=STOPPED).model_dump_json())

    async def close(self) -> None:
        """Stop all works, and end all sandboxes."""
        for work in self._works.values():
            if not work.cancelling():
                work.cancel()
        await asyncio.gather(*self._works.values(), return_exceptions=True)
        if self._warm is not None:
            await self._warm.close()

    async def _work(self, order: ProgramOrder) -> None:
        def report(message: Message) -> None:
            self._report(Reported(work=order.folder.name, message=message).model_dump_json())

        if self._warm is None:
            os.environ.update(order.secrets)
            networks = parse_networks(order.allow_networks)
            self._warm = WarmSandboxes(networks, lambda warm: self._report(warm.model_dump_json()), order.warm_mb)
        try:
            with (order.folder / LOG).open("a", encoding="utf-8") as log:
                ended = await self._ended(order, self._warm, report, log)
        except OSError as error:  # of the log
            ended = ended_by(error)
        report(ended)

    async def _ended(
        self, order: ProgramOrder, warm: WarmSandboxes, report: Callable[[Message], None], log: TextIO
    ) -> Ended:
        try:
            return await work_on_program(order, warm, report, lambda text: print(text, file=log, flush=True))
        except asyncio.CancelledError:
            return STOPPED
        except ENDING as error:
            return ended_by(error)
        except Exception as error:  # noqa: BLE001  it may not end the other works; another attempt continues
            traceback.print_exc(file=log)
            return Ended(status="interrupted", reason=f"an error of the service: {type(error).__name__}")
