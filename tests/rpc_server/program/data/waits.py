"""Async functions: how many run at once, and what cancels them."""

import asyncio
import os
import time

seed_candidate = {"prompt": "seed"}

_running = 0


async def run(example, candidate):
    global _running
    _running += 1
    most = _running
    if "begun" in example:
        open(example["begun"], "w").close()
    try:
        do = example.get("do")
        if do == "hold":
            time.sleep(60)
        elif do == "exit":
            os._exit(5)
        elif do == "pid":
            return os.getpid()
        elif do == "raise":
            raise ValueError("async failure")
        elif do == "cancel_myself":
            raise asyncio.CancelledError
        for _ in range(10):
            await asyncio.sleep(example.get("seconds", 0) / 10)
            most = max(most, _running)
    except asyncio.CancelledError:
        if "cancelled" in example:
            open(example["cancelled"], "a").close()
        raise
    finally:
        _running -= 1
    return {"most": most, "pid": os.getpid()}


def score(example, output):
    return 1.0
