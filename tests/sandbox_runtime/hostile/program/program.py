"""A program that tries to get out. Each example names an attempt; what it got is its output: `got: ...` or `kept: ...`.

`canary` in the example is a text that only the host has; an attempt that returns it has escaped.
"""

import os
import signal
import time

import floods  # noqa: F401
import forging  # noqa: F401
import keys  # noqa: F401
import network  # noqa: F401
import privileges  # noqa: F401
import processes  # noqa: F401
import reading  # noqa: F401
import writing  # noqa: F401
from registry import ATTEMPTS, Kept, attempt

seed_candidate = {"text": ""}


@attempt
def honest(example):
    """What every other example must not keep from its answer."""
    raise Kept("honest")


@attempt
def end_the_parent(example):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(30)


def run(example, candidate):
    try:
        got = ATTEMPTS[example["attempt"]](example)
    except Kept as kept:
        return f"kept: {kept}"
    except Exception as error:
        return f"kept: {type(error).__name__}: {error}"
    return "kept: nothing" if got is None else f"got: {got}"


def score(example, output):
    return 1.0 if output.startswith("kept") else 0.0
