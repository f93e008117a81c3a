"""What attempts took and cost, by what they were made for; a price nobody said is counted as unknown, not as zero."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gepa_client.journal.entries import Spending


@dataclass
class Tally:
    """What attempts of one kind took: calls, examples with a result, and what they say they cost.

    Cost and tokens sum what was reported; `unreported` counts results that came without a `cost_usd`.
    """

    examples: int = 0
    calls: int = 0
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    unreported: int = 0


class Spend:
    """A tally for each kind of attempt (`evaluate`, `retrace`, `score`, `completion`, ...).

    `before`: what earlier processes of the same run spent; it is part of every figure. May be used from any thread.
    """

    def __init__(self, before: Iterable[Spending] = ()) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[str, Tally] = defaultdict(Tally)
        self._watchers: list[Callable[[], None]] = []
        for spent in before:
            tally = self._kinds[spent.kind]
            tally.calls += spent.attempts
            tally.cost_usd += spent.cost_usd
            tally.input_tokens += spent.input_tokens
            tally.output_tokens += spent.output_tokens
            tally.unreported += spent.unpriced

    def __getitem__(self, kind: str) -> Tally:
        """The tally of one kind, which goes on growing."""
        with self._lock:
            return self._kinds[kind]

    def began(self, kind: str) -> None:
        """A call was sent."""
        with self._lock:
            self._kinds[kind].calls += 1

    def ended(self, kind: str, usage: Mapping[str, Any] | None, unpriced: int) -> None:
        """An attempt came to its end, with or without a result."""
        with self._lock:
            tally = self._kinds[kind]
            tally.unreported += unpriced
            if usage is not None:
                tally.cost_usd += usage.get("cost_usd") or 0.0
                tally.input_tokens += usage.get("input_tokens") or 0
                tally.output_tokens += usage.get("output_tokens") or 0
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have `watcher` called after every attempt, on the thread that made it."""
        with self._lock:
            self._watchers.append(watcher)

    def done(self, kind: str, examples: int) -> None:
        """Examples have their result."""
        with self._lock:
            self._kinds[kind].examples += examples

    @property
    def cost_usd(self) -> float:
        """US dollars that are known to be spent, over all kinds."""
        with self._lock:
            return sum(tally.cost_usd for tally in self._kinds.values())

    @property
    def unpriced(self) -> dict[str, int]:
        """Kinds with results whose price nobody said, and how many."""
        with self._lock:
            return {kind: tally.unreported for kind, tally in self._kinds.items() if tally.unreported}
