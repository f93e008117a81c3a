"""A program that answers 2 KB, with as many steps as the environment's STEPS; without STEPS it takes no `trace`."""

# ruff: noqa: ARG001  # the names of the arguments are the contract, used or not

import os
from typing import Any

STEPS = int(os.environ.get("STEPS", "0"))
OUTPUT = "x" * 2000

seed_candidate = {"rules": "Answer."}


def plain(example: Any, candidate: dict[str, str]) -> str:
    """Answer without a trace."""
    return OUTPUT


def traced(example: Any, candidate: dict[str, str], trace: Any) -> str:
    """Answer after as many steps."""
    for number in range(STEPS):
        with trace.step("rules", question="What is the capital of France?", number=number) as step:
            step.outputs = "Paris"
    return OUTPUT


run = traced if "STEPS" in os.environ else plain


def score(example: Any, output: str) -> float:
    """Give every answer the same score."""
    return 1.0
