"""Writes between awaits while other examples run on the same loop."""

import asyncio

seed_candidate = {"prompt": "p"}


async def run(example, candidate):
    for word in example.get("print", ()):
        print(word)
        await asyncio.sleep(0.01)
    if "run_in_threadpool" in example:
        await asyncio.to_thread(print, example["run_in_threadpool"])
    return "done"


def score(example, output):
    return 1.0
