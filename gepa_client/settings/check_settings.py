"""The settings of a check of a few rows, and how many rows it tries."""

from gepa_client.settings.groups import SandboxSettings

CHECK_SETTINGS = (
    *SandboxSettings.model_fields,
    *("fleet", "token_file", "allow_insecure", "allow_mixed_programs", "score_with"),
    *("concurrency", "example_timeout_s"),
    *("trainset", "valset", "testset", "val_fraction", "test_fraction", "max_metric_calls", "auto"),
    *(
        "reflection_lm",
        "reflection_lm_kwargs",
        "reflection_minibatch_size",
        "deterministic",
        "evolve",
        "perfect_score",
        "score_range",
    ),
)
"""The settings that `evolverpc check` has flags for."""

EXAMPLES, MOST_EXAMPLES = 15, 100
"""Rows that a check tries by default, and at most."""

REPEATS, MOST_REPEATS = 2, 20
"""How often `evolverpc check` evaluates each of them by default, and at most. Two show noise at the least cost."""
