"""DSPy's reflective records: as JSON for the optimizer, and as the objects that DSPy's own proposer reads."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from typing import Any

_MOST_KEPT = 64
"""Lists of records kept as objects: more than the proposals that one optimizer has under way at once."""


class Records:
    """Lists of records by their JSON form, so that a list that the client sends back is the list of objects it was.

    Images and histories are objects in DSPy's records, and texts in JSON. A list that is no longer kept, or that
    another process made, stays JSON. Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[str, list[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def shown(self, records: list[Any]) -> list[Any]:
        """The records as JSON values."""
        shown = [_plain(record) for record in records]
        if shown != records:
            with self._lock:
                self._made[_key(shown)] = records
                while len(self._made) > _MOST_KEPT:
                    self._made.popitem(last=False)
        return shown

    def made(self, shown: list[Any]) -> list[Any]:
        """The objects of records that `shown` returned as JSON, else what is given."""
        with self._lock:
            return self._made.get(_key(shown), shown)


def _key(shown: list[Any]) -> str:
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A record as JSON; DSPy's own types (images, files) as the text they are in a prompt."""
    if isinstance(value, dict):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(member) for member in value]
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)
