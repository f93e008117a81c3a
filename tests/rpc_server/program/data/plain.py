"""The least a program can be."""

seed_candidate = {"prompt": "seed", "style": "plain"}


def run(example, candidate):
    return {"answer": example["question"] + candidate["prompt"]}
