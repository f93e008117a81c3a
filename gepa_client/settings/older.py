"""Settings that earlier versions recorded, by the names of this one."""

from collections.abc import Mapping
from typing import Any

from evolverpc_common.settings.sources import SettingsError

STOPS = {
    "timeout": ("max_seconds", float),
    "no_improvement": ("patience", int),
    "score_threshold": ("target_score", float),
    "max_candidate_proposals": ("max_iterations", int),
    "max_tracked_candidates": ("max_candidates", int),
    "file": ("stop_file", str),
}
"""Kinds of the former `stop_callbacks`, written `KIND:VALUE`."""


def upgraded(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return recorded settings with those that were replaced by others under their new names.

    Raises:
        SettingsError: a value is not of its kind.
    """
    values = {name: value for name, value in recorded.items() if name not in ("reflection", "wandb_api_key")}
    sampling = values.pop("sampling_strategy", None)
    if "proposals" in values and values["proposals"] is None:
        values["proposals"] = "1" if sampling in (None, "single") else sampling
    for text in values.pop("stop_callbacks", None) or ():
        kind, _, value = str(text).partition(":")
        try:
            name, read = STOPS[kind]
            before = values.get(name)
            values[name] = read(value) if before is None else before if kind == "file" else min(before, read(value))
        except (KeyError, ValueError, TypeError):
            raise SettingsError(f"the run's record: stop_callbacks: {text!r} is none of {', '.join(STOPS)}") from None
    return values
