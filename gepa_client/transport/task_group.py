"""Runs jobs side by side; after the first failure nothing is begun, and what is under way comes to its end."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from gepa_client.errors import Interrupted

WIDEST = 4096
"""Jobs that wait for a slot or have one, at most; the fleet decides how many of them run."""


@dataclass(eq=False)
class Job:
    """Something to do. `run` is given the job itself, and sets `begun` once it does what cannot be taken back."""

    run: "Callable[[Job], Awaitable[object]]"
    begun: bool = False


async def run_all(jobs: Sequence[Job], width: int = WIDEST) -> None:
    """Run the jobs, started in order, at most `width` at once.

    After the first failure no other job is started, those that have not begun are cancelled, the others awaited; then
    the failure is raised, an interruption before anything else. Cancelling this cancels all of them.
    """
    waiting = iter(jobs)
    failures: list[BaseException] = []
    busy_with: dict[asyncio.Task[None], Job] = {}

    async def work() -> None:
        worker = asyncio.current_task()
        for job in waiting:
            if failures or worker is None:
                return
            busy_with[worker] = job
            try:
                await job.run(job)
            except (Exception, Interrupted) as error:  # noqa: BLE001 - raised below, when the others have ended
                failures.append(error)
                if len(failures) == 1:
                    for other, others_job in busy_with.items():
                        if not others_job.begun and other is not worker:
                            other.cancel()

    workers = [asyncio.create_task(work()) for _ in range(min(width, len(jobs)))]
    try:
        if workers:
            await asyncio.wait(workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    if failures:
        raise next((failure for failure in failures if isinstance(failure, Interrupted)), failures[0])
