"""Scores the outputs of other programs by an async function, and has no `run`."""

import asyncio

seed_candidate = {"prompt": "of no use here"}


async def score(example, output):
    if "begun" in example:
        open(example["begun"], "w").close()
    try:
        await asyncio.sleep(example.get("seconds", 0))
    except asyncio.CancelledError:
        open(example["cancelled"], "w").close()
        raise
    return 1.0 if output == example["want"] else 0.0
