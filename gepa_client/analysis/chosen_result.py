"""GEPA's result with the best candidate that a comparison on fresh rows chose."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from gepa.core.result import GEPAResult


@dataclass(frozen=True)
class ChosenResult(GEPAResult[Any, int]):
    """A result whose best candidate is `chosen`, by index; GEPA's is the first with the highest validation score.

    `dropped`: candidates that users dropped. `whole`: mean scores of the candidates that were compared
    on validation rows that the search left out, on these, the rows of the search, and fresh training rows if any.
    """

    chosen: int = 0
    dropped: frozenset[int] = frozenset()
    whole: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        result: GEPAResult[Any, int],
        chosen: int,
        further_calls: int = 0,
        dropped: frozenset[int] = frozenset(),
        whole: Mapping[int, float] | None = None,
    ) -> Self:
        """Return a result with another best candidate, and with further metric calls."""
        found = {each.name: getattr(result, each.name) for each in fields(GEPAResult)}
        found["total_metric_calls"] = (result.total_metric_calls or 0) + further_calls
        return cls(**found, chosen=chosen, dropped=dropped, whole=whole or {})

    @property
    def best_idx(self) -> int:
        """The index of the best candidate."""
        return self.chosen
