"""Runs and scores, and counts what each costs."""

seed_candidate = {"prompt": "seed"}


def run(example, candidate, usage):
    usage.update(calls=2, input_tokens=10)
    return example["output"]


def score(example, output, usage):
    usage.update(calls=1, cost_usd=0.25)
    if output == "bad":
        raise ValueError("no verdict")
    return 0.5
