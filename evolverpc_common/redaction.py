"""Replace known secrets in text, JSON values and streams of bytes."""

import base64
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from html.entities import codepoint2name
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

REDACTED = "[redacted]"

MIN_SECRET_LENGTH = 8
MIN_WORD_LENGTH = 20
"""Shorter values (the second: values of letters alone) are not replaced, because ordinary text holds them too."""

SHORTEST_DECLARED = 6
"""Characters of the shortest declared secret that is replaced: shorter ones match words by chance."""

LETTERS = {"\n": "n", "\r": "r", "\t": "t"}
"""Those that stand for a character after a backslash."""

BEFORE = r"\\"
MOST_BACKSLASHES = 15
"""Before an escaped character: JSON within JSON, four times."""

SECRET_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTHORIZATION)$", re.IGNORECASE)
"""Names of environment variables with secrets."""


def secrets_of(environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the values of environment variables with a secret's name (`..._API_KEY`, `GEPA_TOKEN`, ...)."""
    variables = os.environ if environment is None else environment
    return [value for name, value in variables.items() if SECRET_NAMES.search(name)]


class Secrets:
    """Values that must not be written down. Secrets may be added while other threads redact.

    Each is replaced as it is, line by line, and as JSON, URLs, HTML, Python's `repr`, hexadecimal digits or base64 hold
    it. So are the secrets within one: the password of a URL, and the members of a JSON object that have a secret's
    name. `declared`: the values are known to be secrets, not guessed by the names of variables, so that only those
    below `SHORTEST_DECLARED` are left alone.
    """

    def __init__(self, values: Iterable[str] = (), *, declared: bool = False) -> None:
        self._declared = declared
        self._values: list[str] = []
        self._escaped: list[tuple[str, re.Pattern[str]]] = []
        self._encoded: list[str] = []
        self._signs: list[bytes] = []
        self._learn(values)

    def add(self, value: str) -> None:
        """Add a secret that becomes known later, such as a token whose file is written during the run."""
        if value not in self._values:
            self._learn([*self._values, value])

    def _learn(self, values: Iterable[str]) -> None:
        self._values = list(values)
        whole = [each for value in self._values for each in (value, *_within(value))]
        lines = {line.strip() for value in whole for line in (value, *value.splitlines())}
        longest_first = sorted(filter(self._is_long_enough, lines), key=lambda line: (-len(line), line))
        # New lists: other threads may be iterating over the old ones. Longest first: a secret may contain another.
        self._escaped = [(_unescaped(line), _pattern(line)) for line in longest_first]
        self._encoded = sorted({form for line in longest_first for form in _encodings(line)}, key=len, reverse=True)
        self._signs = [sign.encode() for sign in [*(part for part, _ in self._escaped), *self._encoded]]

    def written(self, value: Any, verbatim: Set[str] = frozenset()) -> bytes:
        """Return a value as JSON in which every secret is replaced, in keys too.

        `verbatim`: keys whose values stay as they are.
        """
        data = orjson.dumps(value)
        if self._may_be_in(data):
            data = orjson.dumps(self._redacted(orjson.loads(data), verbatim))
        return data

    def redact_json(self, data: bytes) -> bytes:
        """Return JSON, or any other text, with every secret replaced; unchanged without one."""
        if not self._may_be_in(data):
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
        for part, secret in self._escaped:
            if part in text:
                text = secret.sub(REDACTED, text)
        for form in self._encoded:
            text = text.replace(form, REDACTED)
        return text

    def _may_be_in(self, data: bytes) -> bool:
        return any(sign in data for sign in self._signs)

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


def _within(value: str) -> Iterator[str]:
    """Yield the secrets that a value holds: the password of a URL, members of JSON with a secret's name."""
    with suppress(ValueError):
        yield unquote(urlsplit(value).password or "")
    with suppress(ValueError):
        members = orjson.loads(value)
        if isinstance(members, dict):
            yield from secrets_of({name: part for name, part in members.items() if isinstance(part, str)})


def _unescaped(value: str) -> str:
    """Return the longest part of a value that is the same in every text that holds it."""
    return max(re.split("[^0-9A-Za-z]+", value), key=len)


def _pattern(value: str) -> re.Pattern[str]:
    """Return what finds a value in texts that hold it escaped, also several times."""
    return re.compile("".join(_escaped(part) for part in re.findall(r"\\+|[0-9A-Za-z]+|.", value, re.DOTALL)))


def _escaped(part: str) -> str:
    """Return a pattern of letters and digits, of a run of backslashes or of any other character."""
    if part.isascii() and part.isalnum():
        return part
    if part.startswith("\\"):
        return rf"(?:\\{{{len(part)},{len(part) * MOST_BACKSLASHES}}}|(?i:%5c){{{len(part)}}})"
    code, units = ord(part), part.encode("utf-16-be", "surrogatepass").hex()
    octets = [f"{octet:02x}" for octet in part.encode("utf-8", "surrogatepass")]
    forms = [
        f"{BEFORE}{{0,{MOST_BACKSLASHES}}}{re.escape(part)}",
        "".join(f"{BEFORE}{{1,{MOST_BACKSLASHES}}}u{units[at : at + 4]}" for at in range(0, len(units), 4)),
        "".join(f"{BEFORE}{{1,{MOST_BACKSLASHES}}}x{octet}" for octet in octets),
        "".join(f"%{octet}" for octet in octets),
        f"&#(?:0*{code}|x0*{code:x});",
    ]
    if part == " ":
        forms.append(r"\+")
    if part in LETTERS:
        forms.append(f"{BEFORE}{{1,{MOST_BACKSLASHES}}}{LETTERS[part]}")
    if code in codepoint2name:
        forms.append(f"&{codepoint2name[code]};")
    return f"(?:{'|'.join(f'(?i:{form})' for form in forms)})"


def _encodings(value: str) -> Iterator[str]:
    """Yield a value in hexadecimal digits, and within base64 of a longer text."""
    data = value.encode("utf-8", "surrogatepass")
    yield from (data.hex(), data.hex().upper())
    for before in range(3):  # the characters that hold its own bits alone, after any number of other bytes
        whole = base64.b64encode(bytes(before) + data).decode()
        part = whole[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        yield from (part, part.replace("+", "-").replace("/", "_"))


class StreamRedactor:
    """Replaces keys in a stream of bytes, also if one lies across two chunks."""

    def __init__(self, *keys: str) -> None:
        longest_first = sorted((key for key in keys if len(key) >= MIN_SECRET_LENGTH), key=len, reverse=True)
        self._keys = [key.encode() for key in longest_first]
        self._pattern = re.compile(b"|".join(map(re.escape, self._keys)) or b"(?!)")
        self._held = b""

    def redact_text(self, text: str) -> str:
        """Return a whole text with the keys replaced."""
        return self._redacted(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def feed(self, chunk: bytes) -> bytes:
        """Return what may be passed on now: everything but an end that may be the beginning of a key."""
        data = self._held + chunk
        begun = (size for key in self._keys for size in range(len(key)) if data.endswith(key[:size]))
        passed = len(data) - max(begun, default=0)
        # A whole key may end with what begins another one; one that begins another one is held.
        passed = next((key.end() for key in self._pattern.finditer(data) if key.start() < passed < key.end()), passed)
        self._held = data[passed:]
        return self._redacted(data[:passed])

    def rest(self) -> bytes:
        """Return what was held back, at the end of the stream."""
        held, self._held = self._held, b""
        return self._redacted(held)

    def _redacted(self, data: bytes) -> bytes:
        return self._pattern.sub(REDACTED.encode(), data)
