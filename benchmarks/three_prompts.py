"""A program of three prompts, each of which must hold four rules of its own and none of another's.

`run` reports a step for each prompt, and `score` gives feedback on each. With STEPS=off in the environment neither
does, and reflection is shown the same feedback, on the example as a whole, for every prompt.
"""

import os
import re
from typing import Any

PROMPTS = ("extract", "classify", "reply")
RULES = 4
"""Of each prompt: extract has the rules 0 to 3, classify 4 to 7, reply 8 to 11."""

STEPS = os.environ.get("STEPS") != "off"
RULE = re.compile(r"^- rule (\d+)$", re.MULTILINE)

seed_candidate = dict.fromkeys(PROMPTS, "Follow these rules:")


def run(example: Any, candidate: dict[str, str], trace: Any) -> dict[str, bool]:
    """Return, by prompt, whether it did what the row needs."""
    done = {}
    for position, (name, needed) in enumerate(zip(PROMPTS, example["needs"], strict=True)):
        known = {int(number) for number in RULE.findall(candidate[name])}
        own = set(range(position * RULES, (position + 1) * RULES))
        done[name] = needed in known and known <= own
        if STEPS:
            with trace.step(name, message=example["message"]) as step:
                step.outputs = "done" if done[name] else "failed"
    return done


def score(example: Any, output: dict[str, bool]) -> dict[str, Any]:
    """Return the share of prompts that did it, and for each that did not the rule that was not followed."""
    missing = {
        name: f"rule {needed} was not followed"
        for name, needed in zip(PROMPTS, example["needs"], strict=True)
        if not output[name]
    }
    result: dict[str, Any] = {
        "score": sum(output.values()) / len(output),
        "feedback": "; ".join(missing.values()) or "right",
    }
    if STEPS:
        result["component_feedback"] = {name: missing.get(name, "right") for name in PROMPTS}
    return result
