"""Notes every run of an example in a file, so that a test can count what really ran."""

import os
import time
from pathlib import Path

seed_candidate = {"text": "seed"}


def run(example, candidate):
    with Path(os.environ["COUNT_FILE"]).open("a", encoding="utf-8") as file:
        file.write(f"{example['n']}\n")
    time.sleep(example.get("sleep_s", 0))
    return candidate["text"]


def score(example, output):
    return example["n"] / 10
