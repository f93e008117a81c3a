"""Writes between awaits while other examples run on the same loop."""

import asyncio

seed_candidate = {"prompt": "p"}


async def run(example, candidate):
    for word in example.get("print", ()):
        print(word)
        await asyncio.sleep(0.01)
    if "in_thread" in example:
        await asyncio.to_thread(print, example["in_thread"])
    return "done"


def score(example, output):
    return 1.0
