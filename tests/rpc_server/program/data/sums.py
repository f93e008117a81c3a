"""Scores in each of their forms, by async functions beside a plain `run`."""

seed_candidate = {"prompt": "seed"}


def run(example, candidate):
    return example["output"]


async def score(example, output):
    return eval(example["score"])
