"""Replace known secrets in text, JSON values and streams of bytes."""

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping, Set
from typing import Any
from urllib.parse import quote, quote_plus

import orjson

REDACTED = "[redacted]"

MIN_SECRET_LENGTH = 8
MIN_WORD_LENGTH = 20
"""Shorter values (the second: values of letters alone) are not replaced, because ordinary text holds them too."""

SHORTEST_DECLARED = 6
"""Characters of the shortest declared secret that is replaced: shorter ones match words by chance."""

_SECRET_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTHORIZATION)$", re.IGNORECASE)


def secrets_of(environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the values of environment variables with a secret's name (`..._API_KEY`, `GEPA_TOKEN`, ...)."""
    variables = os.environ if environment is None else environment
    return [value for name, value in variables.items() if _SECRET_NAMES.search(name)]


class Secrets:
    """Values that must not be written down. Secrets may be added while other threads redact.

    Each is replaced as it is, line by line, and as JSON, a URL or base64 hold it. `declared`: the values are known to
    be secrets, not guessed by the names of variables, so that only those below `SHORTEST_DECLARED` are left alone.
    """

    def __init__(self, values: Iterable[str] = (), *, declared: bool = False) -> None:
        self._declared = declared
        self._values: list[str] = []
        self._plain: list[str] = []
        self._encoded: list[bytes] = []
        self._learn(values)

    def add(self, value: str) -> None:
        """Add a secret that becomes known later, such as a token whose file is written during the run."""
        if value not in self._values:
            self._learn([*self._values, value])

    def _learn(self, values: Iterable[str]) -> None:
        self._values = list(values)
        lines = {line.strip() for value in self._values for line in (value, *value.splitlines())}
        found = {form for line in lines if self._is_long_enough(line) for form in _forms(line)}
        longest_first = sorted(found, key=lambda form: (-len(form), form))  # one may contain another
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

    def redact_json(self, data: bytes) -> bytes:
        """Return JSON, or any other text, with every secret replaced; unchanged without one."""
        if not any(secret in data for secret in self._encoded):
            return data
        try:
            return orjson.dumps(self.redact(orjson.loads(data)))
        except orjson.JSONDecodeError:
            return self.redact_text(data.decode("utf-8", "replace")).encode()

    def redact(self, value: Any) -> Any:
        """Return a value of JSON with every secret replaced, in keys too."""
        return self._redacted(value, frozenset())

    def redact_text(self, text: str) -> str:
        """Return the text with every secret replaced."""
        for secret in self._plain:
            text = text.replace(secret, REDACTED)
        return text

    def _is_long_enough(self, value: str) -> bool:
        if self._declared:
            return len(value) >= SHORTEST_DECLARED
        return len(value) >= (MIN_WORD_LENGTH if value.isalpha() else MIN_SECRET_LENGTH)

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


def _forms(value: str) -> set[str]:
    """Return a value as text may hold it: as it is, within JSON and URLs, and within base64 of a longer text."""
    data = value.encode("utf-8", "surrogatepass")
    within = [  # the characters that hold its own bits alone, after any number of other bytes
        base64.b64encode(bytes(before) + data).decode()[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        for before in range(3)
    ]
    return {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        *(quote(value, safe=safe, errors="surrogatepass") for safe in ("", "/")),
        quote_plus(value, errors="surrogatepass"),
        *within,
        *(part.replace("+", "-").replace("/", "_") for part in within),
    }


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
