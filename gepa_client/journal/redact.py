"""Keeps secrets out of what is written down: the values that are known, wherever they turn up."""

import os
import re
from collections.abc import Iterable, Mapping

import orjson

SHORTEST = 8
"""Characters below which a value is no secret worth the name, and would be found in innocent text."""

REDACTED = b"[redacted]"
NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTHORIZATION)$", re.IGNORECASE)


class Secrets:
    """Values that must not be written.

    What it changes is changed for GEPA too, which must see what a replay will show it.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        found = {value for value in values if len(value) >= SHORTEST}
        longest_first = sorted(found, key=len, reverse=True)  # one may contain another
        self._encoded = [orjson.dumps(value)[1:-1] for value in longest_first]

    def redact(self, data: bytes) -> bytes:
        """JSON with every secret in it replaced."""
        for secret in self._encoded:
            if secret in data:
                data = data.replace(secret, REDACTED)
        return data


def secrets_of(environment: Mapping[str, str] | None = None) -> list[str]:
    """Values of environment variables whose names say that they are secret (`..._API_KEY`, `GEPA_TOKEN`, ...)."""
    variables = os.environ if environment is None else environment
    return [value for name, value in variables.items() if NAMES.search(name)]
