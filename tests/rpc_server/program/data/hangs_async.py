"""Rows that hold the event loop for ever or for some seconds, that wait for ever, or that behave."""

import asyncio
import time

seed_candidate = {"prompt": "seed"}


async def run(example, candidate, usage):
    usage.update(calls=1, models={"openai/gpt-5": {"calls": 1, "input_tokens": 7}})
    await asyncio.sleep(example["seconds"])
    return await globals()["do_" + example["do"]](example)


def score(example, output):
    return 1.0


async def make_reflective_dataset(candidate, eval_batch, components_to_update):
    await asyncio.sleep(0.5 * len(eval_batch["batch"]))
    return {}


def propose_new_texts(candidate, reflective_dataset, components_to_update):
    return {name: "new" for name in components_to_update}


async def do_behave(example):
    return example["number"]


async def do_hold(example):
    while True:
        time.sleep(60)


async def do_hold_for(example):
    time.sleep(example["held"])


async def do_wait(example):
    await asyncio.Event().wait()
