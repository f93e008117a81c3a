"""What feedback by component is worth: a program of three prompts, optimised with steps and without, at equal budget.

The reflection model is scripted: it adds to a prompt every rule that the feedback it is shown names as not followed. A
rule of another prompt spoils the prompt, so the model can fix a failure only if it is shown the feedback on this
prompt alone. For each of 10 seeds both ways have the same rows, model and metric calls. The goal is the perfect score
on validation. The last line is JSON; the exit status is 1 if a seed misses the goal with steps, or one reaches it
without.
"""

import json
import re
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gepa.api import optimize  # noqa: E402

from benchmarks.three_prompts import PROMPTS, RULE, RULES  # noqa: E402
from gepa_client import ConcurrentReflection, RemoteAdapter, Row, RowLoader  # noqa: E402
from sandbox_runtime import running_server  # noqa: E402

SEEDS = 10
TRAIN, VAL = 36, 12
METRIC_CALLS = 600
SERVER = str(Path(sys.executable).with_name("gepa-server"))
MISSED = re.compile(r"rule (\d+) was not followed")


def rows(count: int, first: int = 0) -> list[Row]:
    """Return rows that need each rule of each prompt in turn, in all combinations."""
    return [
        Row(
            str(first + at),
            {
                "message": f"message {first + at}",
                "needs": [position * RULES + at // RULES**position % RULES for position in range(len(PROMPTS))],
            },
        )
        for at in range(count)
    ]


def model(prompt: Any) -> str:
    """Return the prompt's text with every rule that the feedback names."""
    text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    numbers = {int(number) for number in (*RULE.findall(text), *MISSED.findall(text))}
    return "```\nFollow these rules:\n" + "\n".join(f"- rule {number}" for number in sorted(numbers)) + "\n```"


class _Quiet:
    """GEPA's log, unread."""

    def log(self, message: str) -> None:
        del message


def best_score(url: str, token: str, seed: int) -> float:
    """Run GEPA once and return the best score on validation."""
    with RemoteAdapter(url, token=token, seed=seed) as adapter:
        callbacks: list[Any] = [*adapter.callbacks]
        result = optimize(
            seed_candidate=adapter.seed_candidate,
            trainset=RowLoader(rows(TRAIN)),
            valset=RowLoader(rows(VAL, TRAIN)),
            adapter=adapter,
            reflection_strategy=ConcurrentReflection(model),
            callbacks=callbacks,
            max_metric_calls=METRIC_CALLS,
            seed=seed,
            logger=_Quiet(),
        )
    return float(max(result.val_aggregate_scores))


@contextmanager
def served(steps: str) -> Iterator[tuple[str, str]]:
    """Serve the program while the block runs; yield the server's URL and token."""
    command = [SERVER, "--program", "three_prompts.py", "--env", f"STEPS={steps}"]
    with running_server(command, cwd=ROOT / "benchmarks") as server:
        yield server.url, server.token


def main() -> int:
    """Measure, end with the line of JSON; 0 if every seed reaches the goal with steps, and none without."""
    found: dict[str, list[float]] = {}
    with served("on") as on, served("off") as off:
        for seed in range(SEEDS):
            for steps, (url, token) in (("on", on), ("off", off)):
                found.setdefault(steps, []).append(round(best_score(url, token, seed), 4))
            print(f"seed {seed}: with steps {found['on'][-1]}, without {found['off'][-1]}", flush=True)
    reached = {f"reached_{steps}": sum(score == 1.0 for score in scores) for steps, scores in found.items()}
    task = {"seeds": SEEDS, "metric_calls": METRIC_CALLS, "train_rows": TRAIN, "val_rows": VAL, "rules": RULES}
    means = {f"mean_{steps}": round(statistics.mean(scores), 4) for steps, scores in found.items()}
    print(
        json.dumps(
            {**reached, **means, "limits": {"reached_on": SEEDS, "reached_off": 0}, "scores": found, "task": task}
        )
    )
    return int(reached["reached_on"] < SEEDS or reached["reached_off"] > 0)


if __name__ == "__main__":
    sys.exit(main())
