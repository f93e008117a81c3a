"""The model calls of an example, counted wherever DSPy's trackers of usage count one."""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from typing import Any, Iterator

from .model_usage import add_call, tokens_of, usage_of

_SETTING = "evolverpc_calls"
"""The key among DSPy's settings under which an example has its `Calls`: `dspy.Parallel` copies these to its threads."""

_lock = threading.Lock()


class Calls:
    """The calls of one example, by model."""

    def __init__(self) -> None:
        self._models: dict[str, dict[str, Any]] = {}

    def add(self, model: str, usage: dict[str, Any]) -> None:
        """Add a call; `usage`: as DSPy counts it."""
        with _lock:
            add_call(self._models, model, tokens_of(usage))

    @property
    def usage(self) -> dict[str, Any] | None:
        """The contract's `Usage`; None if no call was counted."""
        return usage_of(self._models) if self._models else None


@contextlib.contextmanager
def counted(dspy: Any) -> Iterator[Calls]:
    """Count the calls of the block.

    With `track_usage` the outermost module of a call makes a tracker, so that its prediction has the usage, provided
    that no tracker is in force. Without it a tracker of our own is in force, as models report their calls to one alone.
    """
    tracker = importlib.import_module("dspy.utils.usage_tracker").UsageTracker
    _watch(tracker, dspy.settings)
    calls = Calls()
    own = None if dspy.settings.track_usage else tracker()
    with dspy.context(**{"usage_tracker": own, _SETTING: calls}):
        yield calls


def _watch(tracker: Any, settings: Any) -> None:
    """Have each tracker, also a nested one and the copy of another thread, report to the example's calls."""
    with _lock:
        add_usage = tracker.add_usage
        if hasattr(add_usage, "__wrapped__"):
            return

        @functools.wraps(add_usage)
        def watched(self: Any, lm: str, usage_entry: dict[str, Any]) -> None:
            add_usage(self, lm, usage_entry)
            calls = settings.get(_SETTING)
            if calls is not None and usage_entry:
                calls.add(lm, self._flatten_usage_entry(usage_entry))

        tracker.add_usage = watched
