"""The entry point of the process that does a tenant's batches and steps.

It is started as `python -P -m gepa_service.jobs.shared_process_main`. Requests come on stdin, reports go to stdout, see
`work_order`. The end of stdin, which also follows the death of the process that started it, stops all works and ends
their sandboxes. What a work logs is appended to `job.log` in its folder; what libraries print goes to the log of this
process, in its working directory, which it removes at its end. All orders have the same secrets.
"""

import asyncio
import contextlib
import gc
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from evolverpc_common.files import remove_tree
from evolverpc_common.open_connections import raise_descriptor_limit
from gepa_service.jobs.process_entry import follow_stdin, opened_messages

if TYPE_CHECKING:
    from gepa_service.jobs.process_works import ProcessWorks


def main() -> None:
    """Carry out orders until stdin ends, and end this process."""
    lines = opened_messages()
    gc.disable()  # it takes a sixth of the imports' time

    from gepa_client.sandboxing.setup import MOST_DESCRIPTORS
    from gepa_service.jobs.process_works import ProcessWorks

    gc.freeze()
    gc.enable()
    logging.basicConfig(level=logging.WARNING)
    raise_descriptor_limit(MOST_DESCRIPTORS)  # once: each set-up restores what it found

    def report(line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the process that started this one is gone; stdin ends too
            lines.write(line.encode() + b"\n")
            lines.flush()

    asyncio.run(_serve(ProcessWorks(report)))
    remove_tree(Path.cwd())  # the process that started this one may have been killed
    os._exit(0)  # threads of libraries may not keep the process


async def _serve(works: "ProcessWorks") -> None:
    loop, requests = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()

    def take(line: bytes | None) -> None:
        loop.call_soon_threadsafe(requests.put_nowait, line)

    follow_stdin(take, lambda: take(None))
    while (line := await requests.get()) is not None:
        works.take(line)
    await works.close()


if __name__ == "__main__":
    main()
