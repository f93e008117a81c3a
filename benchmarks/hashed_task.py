"""A task whose every score and proposal is a digest, so that runs over different wires can be compared text by text."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import payload

Data = dict[str, Any]
Record = dict[str, Any]

SEED_CANDIDATE = {"triage": "Name the team that the message is for.", "reply": "Answer in two sentences."}
TURNS = 2
"""Of the conversation in each row: about 800 bytes of JSON."""

MODEL_WORKERS = 10
"""Completions at once, as many as `gepa.lm.LM.batch_complete` asks for by default."""


def rows(count: int, seconds: float, first: int = 0) -> list[Data]:
    """`count` rows; a program sleeps `seconds` on each."""
    return [{"number": first + at, "seconds": seconds, **payload.row(first + at, TURNS)} for at in range(count)]


def score(candidate: Mapping[str, str], data: Data) -> float:
    """Between 0 and 1, always the same for the same texts and row; a change is about as often for the better."""
    return _fraction("score", str(data["number"]), *(f"{name}={candidate[name]}" for name in sorted(candidate)))


def output(candidate: Mapping[str, str], data: Data) -> str:
    """Return the program's output."""
    return f"team {int(_fraction('output', str(data['number']), candidate['triage']) * 10)}"


def record(data: Data, answer: str, scored: float) -> Record:
    """Return what reflection is shown of one example, in the shape of gepa-rpc's `ReflectiveExample`."""
    return {
        "Inputs": {"text": data["text"]},
        "Generated_Outputs": answer,
        "Feedback": f"Scored {scored:.3f}; expected {data['label']}.",
    }


class HashedModel:
    """A reflection model: after `delay_s` seconds its answer is a digest of the prompt.

    It has what `gepa.lm.LM` has, so that GEPA sends an iteration's prompts together.
    """

    total_cost = 0.0

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s

    def __call__(self, prompt: str | list[dict[str, Any]]) -> str:
        """One completion."""
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        time.sleep(self.delay_s)
        return f"```\nRules {hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}\n```"

    def batch_complete(
        self, messages_list: Sequence[list[dict[str, Any]]], max_workers: int = MODEL_WORKERS
    ) -> list[str]:
        """Several completions, on threads."""
        with ThreadPoolExecutor(max_workers) as pool:
            return list(pool.map(self, messages_list))


def _fraction(*parts: str) -> float:
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % 1000 / 1000
