"""The least a program can be."""

seed_candidate = {"prompt": "seed", "style": "plain"}


def run(example, candidate):
    if example.get("fail"):
        raise ValueError("asked to fail")
    return {"answer": example["question"] + candidate["prompt"]}
