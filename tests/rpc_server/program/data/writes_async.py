"""Writes between awaits while other examples run on the same loop."""

import asyncio
import threading

seed_candidate = {"prompt": "p"}


async def run(example, candidate):
    for word in example.get("print", ()):
        print(word)
        await asyncio.sleep(0.01)
    if "in_thread" in example:
        await asyncio.to_thread(print, example["in_thread"])
    if "raw_thread" in example:
        thread = threading.Thread(target=print, args=(example["raw_thread"],))
        thread.start()
        thread.join()
    return "done"


def score(example, output):
    return 1.0
