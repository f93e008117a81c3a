"""Keeps secrets out of what is written down: the values that are known, wherever they turn up."""

import os
import re
from collections.abc import Iterable, Mapping, Set
from typing import Any

import orjson

SHORTEST = 8
WORD = 20
"""Characters below which a value, or one of letters alone, is no secret worth the name: innocent text has it too."""

REDACTED = "[redacted]"
NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTHORIZATION)$", re.IGNORECASE)


class Secrets:
    """Values that must not be written.

    What it changes is changed for GEPA too, which must see what a replay will show it.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._plain: list[str] = []
        self._encoded: list[bytes] = []
        self._learn(values)

    def add(self, value: str) -> None:
        """A secret that comes to be known later, as a token whose file is written while the run goes on."""
        if value not in self._plain:
            self._learn([*self._plain, value])

    def _learn(self, values: Iterable[str]) -> None:
        found = {value for value in values if len(value) >= (WORD if value.isalpha() else SHORTEST)}
        longest_first = sorted(found, key=len, reverse=True)  # one may contain another
        self._plain = longest_first  # new lists: other threads may be going through the old ones
        self._encoded = [orjson.dumps(value)[1:-1] for value in longest_first]

    def written(self, value: Any, verbatim: Set[str] = frozenset()) -> bytes:
        """A JSON value as it is written down: every secret in its texts, names included, replaced.

        `verbatim`: keys whose texts stay as they are.
        """
        data = orjson.dumps(value)
        if any(secret in data for secret in self._encoded):
            data = orjson.dumps(self._redacted(orjson.loads(data), verbatim))
        return data

    def _redacted(self, value: Any, verbatim: Set[str]) -> Any:
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, list):
            return [self._redacted(part, verbatim) for part in value]
        if isinstance(value, dict):
            return {
                self.redact_text(key): part if key in verbatim else self._redacted(part, verbatim)
                for key, part in value.items()
            }
        return value

    def redact_text(self, text: str) -> str:
        """Text with every secret in it replaced."""
        for secret in self._plain:
            text = text.replace(secret, REDACTED)
        return text


def secrets_of(environment: Mapping[str, str] | None = None) -> list[str]:
    """Values of environment variables whose names say that they are secret (`..._API_KEY`, `GEPA_TOKEN`, ...)."""
    variables = os.environ if environment is None else environment
    return [value for name, value in variables.items() if NAMES.search(name)]
