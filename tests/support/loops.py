"""Event loops of tests that run in a thread of their own."""

import asyncio


async def cancel_others() -> int:
    """End every other task of this loop, also one that has only just accepted a connection; return how many."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return len(tasks)
