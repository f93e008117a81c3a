"""A record of failures that GEPA swallows, kept for whoever must decide whether a run is worth going on with."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

KEPT = 100


@dataclass(frozen=True)
class Failure:
    """`where`: the step that failed (`reflection`, `make_reflective_dataset`, ...); `error`: what it raised."""

    where: str
    error: Exception

    def __str__(self) -> str:
        return f"{self.where}: {type(self.error).__name__}: {self.error}"


class Failures:
    """The first failures in full (at most 100) and the number of all; may be written from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[Failure] = []
        self._count = 0

    def record(self, where: str, error: Exception) -> None:
        """Add one."""
        with self._lock:
            self._count += 1
            if len(self._kept) < KEPT:
                self._kept.append(Failure(where, error))

    @property
    def first(self) -> Failure | None:
        """The first cause, None while nothing has failed."""
        return self._kept[0] if self._kept else None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Failure]:
        with self._lock:
            return iter(list(self._kept))

    def __bool__(self) -> bool:
        return self._count > 0
