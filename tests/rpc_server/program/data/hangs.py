"""Rows that hold the interpreter's lock for ever or for some seconds, that wait for ever, or that behave."""

import re
import threading
import time
from types import SimpleNamespace

seed_candidate = {"prompt": "seed"}


def run(example, candidate, usage):
    usage.update(calls=1, models={"openai/gpt-5": {"calls": 1, "input_tokens": 7}})
    time.sleep(example["seconds"])
    return globals()["do_" + example["do"]](example)


def score(example, output):
    return 1.0


def do_behave(example):
    return example["number"]


def do_hold(example):
    re.match(r"(a+)+$", "a" * 64 + "b")


def do_hold_for(example):
    end = time.monotonic() + example["held"]
    while time.monotonic() < end:
        re.match(r"(a+)+$", "a" * 20 + "b")


def do_wait(example):
    threading.Event().wait()


class Adapter:
    propose_new_texts = None

    def evaluate(self, batch, candidate, capture_traces=False):
        outputs = [run(row, candidate, {}) for row in batch]
        return SimpleNamespace(outputs=outputs, scores=[1.0] * len(batch), trajectories=None)

    def make_reflective_dataset(self, candidate, eval_batch, components):
        return {}
