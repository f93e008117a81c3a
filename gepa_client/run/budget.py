"""The metric calls of a run whose budget is given as `auto` or `max_full_evals`, as `dspy.GEPA` counts them."""

import math

from gepa_client.settings.run_config import RunConfig

CANDIDATES = {"light": 6, "medium": 12, "heavy": 18}
"""Candidates that each `auto` is meant for."""

TRIALS_PER_CANDIDATE = 5
MINIBATCH = 35
FULL_EVALUATION_EVERY = 5
"""Constants of DSPy's estimate, in examples and in trials; a run's own minibatch does not change them."""


def metric_calls(config: RunConfig, *, texts: int, train: int, val: int | None) -> int | None:
    """The run's limit on metric calls; None if it has none.

    `texts`: how many texts the program has, which for DSPy are its predictors. `train`, `val`: rows of each split,
    `val` None if the training rows are also used for validation. The formulas are those of `dspy.GEPA` (DSPy 3.4,
    `auto_budget` and `compile`).
    """
    if config.auto is not None:
        return _auto(CANDIDATES[config.auto], texts, train if val is None else val)
    if config.max_full_evals is not None:
        return config.max_full_evals * (train + (val or 0))
    return config.max_metric_calls


def resolved(config: RunConfig, *, texts: int, train: int, val: int | None) -> RunConfig:
    """The same settings with the budget as a number in `max_metric_calls`."""
    calls = metric_calls(config, texts=texts, train=train, val=val)
    return config.model_copy(update={"auto": None, "max_full_evals": None, "max_metric_calls": calls})


def _auto(candidates: int, texts: int, val: int) -> int:
    trials = int(max(4 * texts * math.log2(candidates), 1.5 * candidates))
    full_evaluations = 1 + (trials + 1) // FULL_EVALUATION_EVERY + 1
    return candidates * TRIALS_PER_CANDIDATE + trials * MINIBATCH + full_evaluations * val
