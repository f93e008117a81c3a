"""The programs of `healthy.py` on one event loop."""

import asyncio

import healthy

seed_candidate = healthy.seed_candidate


async def run(example, candidate):
    if example["way"] is None:
        return healthy.STATUSES
    given = (lambda part: "%s/%s" % (example["host"], part), example["name"])
    way = getattr(healthy, example["way"])
    if asyncio.iscoroutinefunction(way):
        return await way(*given)
    return await asyncio.to_thread(way, *given)


def score(example, output):
    return 1.0
