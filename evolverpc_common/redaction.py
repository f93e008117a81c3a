"""Replace known secrets in text, JSON values and streams of bytes."""

import os
import re
from collections.abc import Iterable, Mapping, Set
from typing import Any

import orjson

REDACTED = "[redacted]"

MIN_SECRET_LENGTH = 8
MIN_WORD_LENGTH = 20
"""Shorter values (the second: values of letters alone) are not replaced, because ordinary text holds them too."""

_SECRET_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTHORIZATION)$", re.IGNORECASE)


def secrets_of(environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the values of environment variables with a secret's name (`..._API_KEY`, `GEPA_TOKEN`, ...)."""
    variables = os.environ if environment is None else environment
    return [value for name, value in variables.items() if _SECRET_NAMES.search(name)]


class Secrets:
    """Values that must not be written down. Secrets may be added while other threads redact."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._plain: list[str] = []
        self._encoded: list[bytes] = []
        self._learn(values)

    def add(self, value: str) -> None:
        """Add a secret that becomes known later, such as a token whose file is written during the run."""
        if value not in self._plain:
            self._learn([*self._plain, value])

    def _learn(self, values: Iterable[str]) -> None:
        found = {value for value in values if len(value) >= (MIN_WORD_LENGTH if value.isalpha() else MIN_SECRET_LENGTH)}
        longest_first = sorted(found, key=len, reverse=True)  # one may contain another
        self._plain = longest_first  # new lists: other threads may be iterating over the old ones
        self._encoded = [orjson.dumps(value)[1:-1] for value in longest_first]

    def written(self, value: Any, verbatim: Set[str] = frozenset()) -> bytes:
        """Return a value as JSON in which every secret is replaced, in keys too.

        `verbatim`: keys whose values stay as they are.
        """
        data = orjson.dumps(value)
        if any(secret in data for secret in self._encoded):
            data = orjson.dumps(self._redacted(orjson.loads(data), verbatim))
        return data

    def redact_text(self, text: str) -> str:
        """Return the text with every secret replaced."""
        for secret in self._plain:
            text = text.replace(secret, REDACTED)
        return text

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


class StreamRedactor:
    """Replaces one key in a stream of bytes, also if the key lies across two chunks."""

    def __init__(self, key: str) -> None:
        self._key = key.encode() if len(key) >= MIN_SECRET_LENGTH else b""
        self._held = b""

    def redact_text(self, text: str) -> str:
        """Return a whole text with the key replaced."""
        return text.replace(self._key.decode(), REDACTED) if self._key else text

    def feed(self, chunk: bytes) -> bytes:
        """Return what may be passed on now: everything but an end that may be the beginning of the key."""
        if not self._key:
            return chunk
        data = (self._held + chunk).replace(self._key, REDACTED.encode())
        sizes = range(min(len(self._key) - 1, len(data)), 0, -1)
        keep = next((size for size in sizes if data.endswith(self._key[:size])), 0)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def rest(self) -> bytes:
        """Return what was held back, at the end of the stream."""
        held, self._held = self._held, b""
        return held
