"""The entry point of the process that does a tenant's batches and steps: `python -P -m gepa_service.jobs.host_main`.

`Begin` and `Stop` come on stdin, `Reported` and `Warm` go to stdout. The end of stdin, which also follows the death of
the process that started it, stops all works and ends their sandboxes. What a work logs is appended to `job.log` in its
folder; what libraries print goes to the log of this process, in its working directory, which it removes at its end. All
orders have the same secrets.
"""

import asyncio
import contextlib
import gc
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from evolverpc_common.files import remove_tree
from evolverpc_common.open_connections import raise_descriptor_limit

if TYPE_CHECKING:
    from gepa_service.jobs.host import Host

STOP_S = 60.0
"""Seconds that the process may take to end its sandboxes once the process that started it is gone."""


def main() -> None:
    """Carry out orders until stdin ends, and end this process."""
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no message
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    gc.disable()  # it takes a sixth of the imports' time

    from gepa_client.sandboxing.setup import MOST_DESCRIPTORS
    from gepa_service.jobs.host import Host

    gc.freeze()
    gc.enable()
    logging.basicConfig(level=logging.WARNING)
    raise_descriptor_limit(MOST_DESCRIPTORS)  # once: each set-up restores what it found

    def report(line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the process that started this one is gone; stdin ends too
            lines.write(line.encode() + b"\n")
            lines.flush()

    asyncio.run(_serve(Host(report)))
    remove_tree(Path.cwd())  # the process that started this one may have been killed
    os._exit(0)  # threads of libraries may not keep the process


async def _serve(host: "Host") -> None:
    loop, requests = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()

    def follow() -> None:
        for line in sys.stdin.buffer:
            loop.call_soon_threadsafe(requests.put_nowait, line)
        loop.call_soon_threadsafe(requests.put_nowait, None)
        time.sleep(STOP_S)
        os._exit(1)

    threading.Thread(target=follow, name="stdin", daemon=True).start()
    while (line := await requests.get()) is not None:
        host.take(line)
    await host.close()


if __name__ == "__main__":
    main()
