"""A program whose true scores are known, as an adapter of GEPA's.

A candidate's text is a number and eight skills, one for each kind of row. It passes a row if its skill, less the row's
difficulty, plus what this text makes of this row, plus the noise of this evaluation, is above 0; all but the skills are
normal, of standard deviation 1, `OWN` and the row's `noise`. So two candidates' scores correlate over the rows, and two
texts with the same skills have the same true score, but not the same scores.
"""

import hashlib
import itertools
import math
import re
from collections.abc import Sequence
from statistics import NormalDist, fmean
from typing import Any

from gepa.core.adapter import EvaluationBatch

KINDS = 8
OWN = 0.7
TEXT = re.compile(r"candidate (\d+): (-?\d[-\d. ]*\d)")
STANDARD = NormalDist()


def text_of(number: int, skills: Sequence[float]) -> str:
    """Return the text of a candidate."""
    return f"candidate {number}: {' '.join(f'{skill:.6f}' for skill in skills)}"


def skills_of(text: str) -> list[float]:
    """Return the skills in a text, or in the first one that a prompt holds."""
    found = TEXT.search(text)
    assert found is not None, text
    return [float(skill) for skill in found[2].split()]


def rows(run: int, count: int, noise: float, first: int = 0) -> list[dict[str, float]]:
    """Return rows of a run, drawn from all possible ones, with these numbers."""
    return [{"run": run, "row": first + at, "noise": noise} for at in range(count)]


def truth(text: str, noise: float) -> float:
    """Return the true mean score of a candidate over all possible rows."""
    return fmean(STANDARD.cdf(skill / math.sqrt(1 + OWN**2 + noise**2)) for skill in skills_of(text))


class LuckAdapter:
    """The program, as GEPA's adapter: a batch takes one call."""

    propose_new_texts = None

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def evaluate(
        self, batch: Sequence[dict[str, float]], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[Any, str]:
        """Return 0 or 1 for each row."""
        skills = skills_of(candidate["text"])
        scores = [float(self._passes(row, candidate["text"], skills)) for row in batch]
        outputs = ["passes" if score else "fails" for score in scores]
        return EvaluationBatch(outputs, scores, trajectories=outputs if capture_traces else None)

    def _passes(self, row: dict[str, float], text: str, skills: Sequence[float]) -> bool:
        kind, difficulty = _uniform(row["run"], row["row"])
        own, _ = _uniform(row["run"], row["row"], text)
        level = skills[int(kind * KINDS)] - STANDARD.inv_cdf(difficulty) + OWN * STANDARD.inv_cdf(own)
        if row["noise"]:
            level += row["noise"] * STANDARD.inv_cdf(_uniform(row["run"], next(self._numbers))[0])
        return level > 0

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: EvaluationBatch[Any, str], components_to_update: Sequence[str]
    ) -> dict[str, list[dict[str, str]]]:
        """Return what each row came to."""
        del candidate
        return {name: [{"Feedback": output} for output in eval_batch.outputs] for name in components_to_update}


def _uniform(*key: Any) -> tuple[float, float]:
    """Return two numbers between 0 and 1 that depend on the key alone."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=16).digest()
    first, second = (int.from_bytes(half, "big") for half in (digest[:8], digest[8:]))
    return (first + 0.5) / 2**64, (second + 0.5) / 2**64
