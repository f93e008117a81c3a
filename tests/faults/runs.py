"""What is run: the settings of a run, its rows, and the moments at which something happens to it."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

WORDS = ("red", "green", "blue", "pink", "grey", "teal", "gold", "navy")
TRAIN, VAL, TEST = 12, 8, 4
MINIBATCH = 3
LONGEST_MS = 20


@dataclass(frozen=True)
class Setup:
    """A run up to its seed: what is the same in the undisturbed run and in those that accidents happen to.

    `tie_rows`: as the setting; 0 leaves it out.
    """

    components: int = 3
    proposals: str = "2x2"
    merge: bool = False
    metric_calls: int = 190
    train: int = TRAIN
    val: int = VAL
    tie_rows: int = 0
    seed: int = 0

    @property
    def name(self) -> str:
        """For files of this setup."""
        modes = f"{'merge-' if self.merge else ''}{self.tie_rows}"
        return f"{self.components}-{self.proposals}-{modes}-{self.train}-{self.val}-{self.metric_calls}-{self.seed}"

    def flags(self) -> list[str]:
        """The settings as `evolverpc optimize` takes them."""
        flags = {
            "--trainset": "train.jsonl", "--valset": "val.jsonl", "--testset": "test.jsonl", "--seed": self.seed,
            "--proposals": self.proposals, "--max-metric-calls": self.metric_calls,
            "--reflection-minibatch-size": MINIBATCH, "--score-range": "0,2",
        }  # fmt: skip
        return [str(word) for flag in flags.items() for word in flag] + self._modes()

    def _modes(self) -> list[str]:
        return [
            *(["--use-merge"] if self.merge else []),
            *(["--tie-rows", str(self.tie_rows)] if self.tie_rows else []),
        ]

    def write_rows(self, folder: Path, log: Path) -> None:
        """The files of rows that `flags` names, in `folder`; the program notes in `log` what it runs of them."""
        first = 0
        for split, count in (("train", self.train), ("val", self.val), ("test", TEST)):
            rows = [self._row(number, log) for number in range(first, first + count)]
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            first += count

    def _row(self, number: int, log: Path | str) -> dict[str, object]:
        rng = seeded(number)
        parts = [number % self.components, (number // self.components + 1) % self.components]
        wants = [[f"part{part}", rng.choice(WORDS)] for part in parts]
        return {"n": number, "wants": wants, "ms": rng.randint(3, LONGEST_MS), "log": str(log)}


def seeded(*seed: object) -> random.Random:
    """Random choices that can be repeated."""
    return random.Random(repr(seed))
