"""How often a certificate's rule finds a gain that does not exist, and how much power it has, by kinds of scores.

Each test draws the scores of a seed and of another candidate on test rows, counts equal rows as one, and applies the
rule of a first certificate. In the first grid the true mean difference is 0 or below; in the second there is a gain.
Beside it: the rule of before, the sign-flip test of all rows with Student's interval, which states its error for
differences that are symmetric about 0.

The last line is JSON; the exit status is 1 if a limit is missed.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


from gepa_client.analysis import power  # noqa: E402
from gepa_client.analysis.paired_comparison import interval  # noqa: E402
from gepa_client.certificate.verdict import allowed_error, judge  # noqa: E402
from gepa_client.journal.history import RecordedRow, by_unit  # noqa: E402

ROWS = (10, 20, 40, 100, 300)
COPIES = 10
"""Of each content, if rows are duplicated."""
FLIPS = 2000
ERROR = allowed_error(1)
LIMITS = {"false_improved": 0.05, "power_as_named": 0.75}

Differences = Callable[[random.Random], float]
"""Draws the difference of one row, from -1 to 1."""


def _two_point(gain: float, rare: float, loss: float = 1.0) -> Differences:
    return lambda draw: -loss if draw.random() < rare else gain


def _skewed(shift: float) -> Differences:
    return lambda draw: shift - draw.betavariate(0.3, 2.7)  # of mean 0.1


def _ties(gain: float) -> Differences:
    return lambda draw: (
        0.0 if draw.random() < 0.8 else max(-1.0, min(draw.choice((-0.5, -0.25, 0.25, 0.5)) + gain / 0.2, 1.0))
    )


def _graded(gain: float) -> Differences:
    return lambda draw: max(-1.0, min(draw.gauss(gain, 0.15), 1.0))


def _passes(wins: float, losses: float) -> Differences:
    return lambda draw: float(draw.choices((1, -1, 0), (wins, losses, 1 - wins - losses))[0])


NO_GAIN: dict[str, Differences] = {
    "rare large losses: +0.02, or -1 in 3 % of rows": _two_point(0.02, 0.03),
    "rare losses: +0.1, or -1 in 10 % of rows": _two_point(0.1, 0.1),
    "two-point: +0.25, or -0.5 in a third of rows": _two_point(0.25, 1 / 3, 0.5),
    "skewed": _skewed(0.1),
    "heavy ties: 80 % of rows": _ties(0.0),
    "graded": _graded(0.0),
    "passed or not": _passes(0.15, 0.15),
}

GAIN: dict[str, Differences] = {
    "small gains: +0.05 on average, deviation 0.15": _graded(0.05),
    "skewed: +0.05 on average": _skewed(0.15),
    "heavy ties: +0.05 on average": _ties(0.05),
    "rare losses: +0.15, or -1 in 3 % of rows": _two_point(0.15, 0.03),
    "passed or not: 20 % win, 10 % lose": _passes(0.2, 0.1),
}


def verdicts(differences: Differences, rows: int, copies: int, seed: str) -> tuple[bool, bool]:
    """Return whether the certificate, and whether the rule of before, states "improved" of one draw."""
    draw = random.Random(seed)  # noqa: S311 - repeatable
    contents = [differences(draw) for _ in range(ceil(rows / copies))]
    drawn = [contents[at // copies] for at in range(rows)]
    sealed = [_row(at, at // copies) for at in range(rows)]
    first = [[min(1.0, 1.0 - each)] for each in drawn]
    second = [[1.0 + min(0.0, each)] for each in drawn]
    before, after = by_unit(sealed, first), by_unit(sealed, second)
    improved = len(before) > 1 and judge(before, after)[0] == "improved"  # a single unit has no certificate
    return improved, _sign_flip(drawn, seed)


def _row(at: int, content: int) -> RecordedRow:
    data = {"text": f"row {content}"}
    return RecordedRow(at, {"id": str(at), "data": data}, data)


def _sign_flip(drawn: Sequence[float], seed: str) -> bool:
    values = np.array(drawn)
    signs = np.random.default_rng(list(seed.encode())).choice((-1.0, 1.0), (FLIPS, len(values)))
    extreme = float(np.mean(np.abs(signs @ values) >= abs(values.sum()) - 1e-9))
    return extreme <= ERROR and interval(drawn, 1 - ERROR)[0] > 0


def _shares(differences: str, gains: bool, runs: int, cell: tuple[int, int]) -> tuple[float, float]:
    rows, copies = cell
    kind = (GAIN if gains else NO_GAIN)[differences]
    found = [verdicts(kind, rows, copies, f"{differences} {cell} {run}") for run in range(runs)]
    return fmean(now for now, _ in found), fmean(before for _, before in found)


def _named(gain: float, spread: float, runs: int) -> tuple[int, float]:
    """Return the rows that `check` names for a gain of graded scores, and the share of tests of these that show it."""
    seed = power.Noise(15, 2, within=0.0, between=spread * spread)
    rows = power.rows_needed(seed, gain, error=ERROR, exact=False)
    assert rows is not None
    deviation = power.variance_of_difference(seed, gain) ** 0.5
    kind: Differences = lambda draw: max(-1.0, min(draw.gauss(gain, deviation), 1.0))  # noqa: E731
    return rows, fmean(verdicts(kind, rows, 1, f"{gain} {run}")[0] for run in range(runs))


def main() -> int:
    """Measure, end with the line of JSON; 0 if every limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="tests of each cell without a gain; of others half")
    runs = parser.parse_args().runs
    grids: dict[str, dict[str, Any]] = {"no_gain": {}, "gain": {}}
    with ProcessPoolExecutor() as pool:
        kinds = [(name, False, 1) for name in NO_GAIN] + [(name, True, 1) for name in GAIN]
        kinds.append((next(iter(NO_GAIN)), False, COPIES))
        kinds.append(("graded", False, COPIES))
        for name, gains, copies in kinds:
            cells = [(rows, copies) for rows in ROWS]
            found = list(pool.map(partial(_shares, name, gains, runs // (1 + gains)), cells))
            shown = f"{name}; each row {copies} times" if copies > 1 else name
            grids["gain" if gains else "no_gain"][shown] = {
                way: {str(rows): round(shares[at], 4) for rows, shares in zip(ROWS, found, strict=True)}
                for at, way in enumerate(("now", "before"))
            }
            print(f"{shown}: {found}", flush=True)
        named = dict(zip((0.05, 0.1), pool.map(_named, (0.05, 0.1), (0.2, 0.2), (runs // 2,) * 2), strict=True))
    worst = {way: max(max(shares[way].values()) for shares in grids["no_gain"].values()) for way in ("now", "before")}
    figures = {
        "false_improved": worst["now"],
        "power_as_named": min(share for _, share in named.values()),
        "limits": LIMITS,
        "false_improved_before": worst["before"],
        "runs": runs,
        "error": ERROR,
        **grids,
        "named": {str(gain): {"rows": rows, "shown": share} for gain, (rows, share) in named.items()},
    }
    print(json.dumps(figures))
    return int(worst["now"] > LIMITS["false_improved"] or figures["power_as_named"] < LIMITS["power_as_named"])


if __name__ == "__main__":
    sys.exit(main())
