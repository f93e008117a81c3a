"""The conformance cases: their language, and what a check is, what its steps send and what they expect, as models.

The language has templates to fill and matchers to compare with; see `protocol/conformance/README.md`.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evolverpc_common.equal_json import same_json

ABSENT: Any = object()
"""Stands for a key that an object does not have."""

SHOWN_CHARACTERS = 160

PLACE = re.compile(r"\$\{([a-z_][^{}]*)\}")

PART = re.compile(r"\[(\*|\d+)\]|([^.\[\]]+)")


class Mismatch(NamedTuple):
    """Where an answer is not as expected: its path (empty for the whole), what was expected there, what was found."""

    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{_at(self.path, 'expected')} {self.expected}, found {self.found}"


def mismatches(actual: Any, matcher: Any, path: str = "") -> list[Mismatch]:
    """Return where `actual` differs from the matcher; empty if it matches."""
    if isinstance(matcher, dict):
        operators = [key for key in matcher if key.startswith("$")]
        if operators:
            if len(operators) != len(matcher):
                raise ValueError(f"a matcher mixes operators and keys: {sorted(matcher)}")
            return [found for key in operators for found in _operate(key, matcher[key], actual, path)]
        return _object(actual, matcher, path)
    if isinstance(matcher, list):
        return _array(actual, matcher, path)
    return [] if same_json(actual, matcher) else [Mismatch(path, shown(matcher), shown(actual))]


def shown(value: Any) -> str:
    """Return a value as short text for a report."""
    try:
        text = "nothing" if value is ABSENT else json.dumps(value)
    except RecursionError:
        text = "a value that nests too deep to show"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def _at(path: str, text: str) -> str:
    return f"{path}: {text}" if path else text


def _object(actual: Any, matcher: dict[str, Any], path: str) -> list[Mismatch]:
    if not isinstance(actual, dict):
        return [Mismatch(path, "an object", shown(actual))]
    return [
        found
        for key, expected in matcher.items()
        for found in mismatches(actual.get(key, ABSENT), expected, f"{path}.{key}" if path else key)
    ]


def _array(actual: Any, matcher: list[Any], path: str) -> list[Mismatch]:
    return _wrong_length(actual, matcher, path) or [
        found
        for position, (item, expected) in enumerate(zip(actual, matcher, strict=True))
        for found in mismatches(item, expected, f"{path}[{position}]")
    ]


def _wrong_length(actual: Any, matchers: list[Any], path: str) -> list[Mismatch]:
    if not isinstance(actual, list):
        return [Mismatch(path, "an array", shown(actual))]
    if len(actual) != len(matchers):
        return [Mismatch(path, f"{len(matchers)} items", f"{len(actual)}: {shown(actual)}")]
    return []


def _operate(operator: str, argument: Any, actual: Any, path: str) -> list[Mismatch]:
    if operator in DEEP:
        return DEEP[operator](actual, argument, path)
    if operator not in FLAT:
        raise ValueError(f"unknown operator {operator}")
    holds, words = FLAT[operator]
    return [] if holds(actual, argument) else [Mismatch(path, words.replace("_", shown(argument)), shown(actual))]


def _every(actual: Any, matcher: Any, path: str) -> list[Mismatch]:
    if isinstance(actual, dict):
        return [found for key, value in actual.items() for found in mismatches(value, matcher, f"{path}.{key}")]
    if isinstance(actual, list):
        return [found for at, value in enumerate(actual) for found in mismatches(value, matcher, f"{path}[{at}]")]
    return [Mismatch(path, "an array or an object", shown(actual))]


def _some(actual: Any, matcher: Any, path: str) -> list[Mismatch]:
    if isinstance(actual, list) and any(not mismatches(value, matcher) for value in actual):
        return []
    return [Mismatch(path, f"an array with an item {shown(matcher)}", shown(actual))]


def _unordered(actual: Any, matchers: list[Any], path: str) -> list[Mismatch]:
    if wrong := _wrong_length(actual, matchers, path):
        return wrong
    left = list(actual)
    for matcher in matchers:
        at = next((at for at, item in enumerate(left) if not mismatches(item, matcher)), None)
        if at is None:
            return [Mismatch(path, f"an item {shown(matcher)}", shown(actual))]
        del left[at]
    return []


def _one_of(actual: Any, matchers: list[Any], path: str) -> list[Mismatch]:
    if any(not mismatches(actual, matcher) for matcher in matchers):
        return []
    return [Mismatch(path, f"one of {shown(matchers)}", shown(actual))]


def _not(actual: Any, matcher: Any, path: str) -> list[Mismatch]:
    return [] if mismatches(actual, matcher) else [Mismatch(path, f"anything but {shown(matcher)}", shown(actual))]


def _length(actual: Any, matcher: Any, path: str) -> list[Mismatch]:
    if not isinstance(actual, str | list | dict):
        return [Mismatch(path, "a text, an array or an object", shown(actual))]
    return mismatches(len(actual), matcher, f"{path or 'value'} (length)")


TYPES: dict[str, Any] = {
    "string": str,
    "number": int | float,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}
"""Python's types of JSON values; a boolean is no number."""


def _is_type(actual: Any, name: str) -> bool:
    return isinstance(actual, TYPES[name]) and (name == "boolean" or not isinstance(actual, bool))


def _holds(actual: Any, part: Any) -> bool:
    if isinstance(actual, str):
        return isinstance(part, str) and part in actual
    return isinstance(actual, list) and any(same_json(item, part) for item in actual)


def _distinct(actual: Any, wanted: bool) -> bool:
    found = isinstance(actual, list) and all(
        not same_json(item, other) for at, item in enumerate(actual) for other in actual[:at]
    )
    return found is wanted


DEEP: dict[str, Callable[[Any, Any, str], list[Mismatch]]] = {
    "$every": _every,
    "$some": _some,
    "$unordered": _unordered,
    "$one_of": _one_of,
    "$not": _not,
    "$length": _length,
}

FLAT: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "$absent": (lambda actual, wanted: (actual is ABSENT) is wanted, "its absence to be _"),
    "$type": (_is_type, "a value of type _"),
    "$exactly": (same_json, "exactly _"),
    "$approx": (lambda actual, near: _is_type(actual, "number") and abs(actual - near) <= 1e-9, "about _"),
    "$at_least": (lambda actual, bound: _is_type(actual, "number") and actual >= bound, "at least _"),
    "$at_most": (lambda actual, bound: _is_type(actual, "number") and actual <= bound, "at most _"),
    "$contains": (_holds, "a value that contains _"),
    "$lacks": (lambda actual, text: actual is ABSENT or text not in json.dumps(actual), "a value without _"),
    "$starts": (lambda actual, text: isinstance(actual, str) and actual.startswith(text), "a text that begins with _"),
    "$keys": (
        lambda actual, keys: isinstance(actual, dict) and actual.keys() == set(keys),
        "an object with the keys _",
    ),
    "$key_order": (
        lambda actual, keys: isinstance(actual, dict) and list(actual) == keys,
        "an object with, in this order, the keys _",
    ),
    "$distinct": (_distinct, "that its items are distinct: _"),
}
"""Operator -> whether a value fits, and what is expected in words, `_` being the argument."""


class UnknownName(LookupError):
    """A case names a value that is not there."""


def render(node: Any, scope: Mapping[str, Any]) -> Any:
    """`node` with every `${name.path}` replaced and every generator written out.

    Raises:
        UnknownName: a name or path is not in `scope`.
    """
    if isinstance(node, str):
        whole = PLACE.fullmatch(node)
        if whole:
            return _required(whole.group(1), scope)
        return PLACE.sub(lambda place: str(_required(place.group(1), scope)), node)
    if isinstance(node, list):
        return [render(item, scope) for item in node]
    if isinstance(node, dict):
        generator = next((key for key in GENERATORS if key in node), None)
        if generator is not None:
            return GENERATORS[generator](node, scope)
        return {render(key, scope): render(value, scope) for key, value in node.items()}
    return node


def as_json(value: Any) -> bytes:
    """Return the value as JSON in UTF-8; a lone surrogate of a server's text, which has none, as its escape."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def as_bytes(rendered: Any) -> bytes:
    """Return the body of a rendered `raw`: texts in UTF-8 and bytes, one after the other."""
    if isinstance(rendered, list):
        return b"".join(as_bytes(part) for part in rendered)
    return rendered if isinstance(rendered, bytes) else str(rendered).encode()


def lookup(document: Any, path: str) -> Any:
    """Return the value at `a.b[0].c`, or `ABSENT`; `[*]` collects what the rest of the path finds in each item."""
    parts = list(PART.finditer(path))
    for number, part in enumerate(parts):
        index, key = part.groups()
        if index == "*":
            rest = path[part.end() :].lstrip(".")
            items = document if isinstance(document, list) else []
            return [lookup(item, rest) for item in items] if rest else items
        if key is not None and isinstance(document, Mapping):
            document = document.get(key, ABSENT)
        elif index is not None and isinstance(document, list) and int(index) < len(document):
            document = document[int(index)]
        else:
            return ABSENT
        if document is ABSENT and number < len(parts):
            return ABSENT
    return document


def _required(path: str, scope: Mapping[str, Any]) -> Any:
    if path.startswith("fresh:"):
        return scope["fresh"][path.removeprefix("fresh:")]
    value = lookup(scope, path)
    if value is ABSENT:
        raise UnknownName(f"no value for ${{{path}}}")
    return value


def _times(node: Mapping[str, Any], scope: Mapping[str, Any]) -> int:
    return int(render(node["$times"], scope)) + int(node.get("$plus", 0))


def _repeat(node: Mapping[str, Any], scope: Mapping[str, Any]) -> list[Any]:
    return [render(node["$repeat"], {**scope, "index": index}) for index in range(_times(node, scope))]


def _nest(node: Mapping[str, Any], _scope: Mapping[str, Any]) -> list[Any]:
    nested: list[Any] = []
    for _ in range(int(node["$nest"]) - 1):
        nested = [nested]
    return nested


def _product(node: Mapping[str, Any], scope: Mapping[str, Any]) -> float:
    left, right = (render(factor, scope) for factor in node["$product"])
    product = left * right
    return round(product) if product == round(product) else float(product)


GENERATORS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Any]] = {
    "$repeat": _repeat,
    "$text": lambda node, scope: str(node["$text"]) * _times(node, scope),
    "$nest": _nest,
    "$product": _product,
    "$join": lambda node, scope: {key: value for part in render(node["$join"], scope) for key, value in part.items()},
    "$bytes": lambda node, _scope: bytes.fromhex(node["$bytes"]),
}

Matcher = Any
"""A value that an answer is held against; the language is in `protocol/conformance/README.md`."""


class CaseModel(BaseModel):
    """Cases are data written by hand: a misspelt key must not turn into a check that checks nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Expectation(CaseModel):
    """The expected answer. A field that is not given expects nothing, except as `CaseStep.expect` defines.

    `status`: HTTP statuses allowed. `headers`: matchers by lower-case name. `id`, `result`, `error`: of the JSON-RPC
    answer. `body`: the whole body as JSON. `empty`: no body. `or_lost`: the server may instead close the connection.
    `within_s`: seconds from sending to the whole answer.
    """

    status: list[int] | None = None
    headers: dict[str, Matcher] = {}
    id: Matcher = None
    result: Matcher = None
    error: Matcher = None
    body: Matcher = None
    empty: bool = False
    or_lost: bool = False
    within_s: float | None = None


class HttpOverrides(CaseModel):
    """What differs from `POST /rpc` with the token and `Content-Type: application/json`.

    `path` is the server's, in place of the RPC path. `headers`: added or replaced; null leaves one out,
    a list sends one header for each value.
    `upload`: `chunked` sends the body without its length; `withheld` declares one byte more than `max_request_bytes`
    and sends only the body given; `endless` sends chunks up to twice that limit.
    """

    verb: str = "POST"
    path: str | None = None
    query: str | None = None
    headers: dict[str, str | list[str] | None] = {}
    upload: Literal["chunked", "withheld", "endless"] | None = None


class CaseStep(CaseModel):
    """One thing done in a check; exactly one of `call`, `send`, `raw`, `parallel`, `compare` and `end`.

    `call`: a request for this method with `params` and a fresh id. `send`: this JSON as the body. `raw`: this text, or
    list of texts and generators, as the body. `parallel`: steps at the same time. `compare`: a value held `with` a
    matcher. `end`: start the program over stdio once more, and end its input or send it SIGTERM; it must exit within
    `expect.within_s`. `times`: this step so many times at once. `after_s`: wait before it. `disconnect_after_s`: close
    the connection then, expecting nothing. `save`: name -> path in the answer (`elapsed` for the seconds it took).
    Without `expect`, a request must have a result.
    """

    call: str | None = None
    params: Any = None
    send: Any = None
    raw: Any = None
    parallel: "list[CaseStep] | None" = None
    compare: Any = None
    end: Literal["input", "sigterm"] | None = None
    with_: Matcher = Field(default=None, alias="with")
    times: int = 1
    after_s: float | dict[str, Any] = 0.0
    http: HttpOverrides = HttpOverrides()
    disconnect_after_s: float | None = None
    save: dict[str, str] = {}
    expect: Expectation | None = None

    @property
    def kind(self) -> str:
        """Which of the six kinds of step this is."""
        return next(iter(self.model_fields_set & KINDS))

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if len(self.model_fields_set & KINDS) != 1:
            raise ValueError(f"a step is exactly one of {', '.join(sorted(KINDS))}")
        return self


KINDS = frozenset({"call", "send", "raw", "parallel", "compare", "end"})

CORE = "core"
"""What every endpoint must do; the other parts of the contract are the capabilities."""


class Check(CaseModel):
    """One sentence about an endpoint, and the steps that find out whether it holds.

    `requires`, `lacks`: capabilities that must, must not, be advertised for the check to apply. `when`: matchers by
    path in the answer of `discover`, without which the check does not apply. `needs` (a matcher by limit; one that is
    not stated is infinite), `program` (that must be served) and `needs_token` (the runner must hold one): without these
    the check applies, and nothing is verified.
    `over`: `http` for what the server before a program over stdio sees to, `stdio` for what only such a program does.
    `section`: of `docs/protocol.md`.
    `timeout_s`: seconds for all of it.
    """

    id: Annotated[str, Field(pattern=r"^[a-z_]+(\.[a-z0-9_]+)+$")]
    title: str
    level: Literal["must", "should"]
    section: str
    requires: list[str] = []
    lacks: list[str] = []
    over: Literal["http", "stdio", "any"] = "any"
    when: dict[str, Matcher] = {}
    needs: dict[str, Matcher] = {}
    program: str | None = None
    needs_token: bool = False
    timeout_s: float = 60.0
    steps: Annotated[list[CaseStep], Field(min_length=1)]

    @property
    def part(self) -> str:
        """The capability that it verifies, or `core`."""
        named = self.id.partition(".")[0]
        return named if named in self.requires else self.requires[0] if self.requires else CORE


class Area(CaseModel):
    """One file of cases."""

    area: str
    about: str
    checks: list[Check]


@cache
def load_checks(over: Literal["http", "stdio"] = "http") -> tuple[Check, ...]:
    """Every check of a server, or of a program over stdio behind ours, in the order of the files' names."""
    folder = files("protocol") / "conformance"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    areas = [Area.model_validate_json((folder / name).read_bytes()) for name in names]
    return tuple(check for area in areas for check in area.checks if check.over in (over, "any"))
