"""Which versions of Node a range allows, as npm reads ranges: `>=18`, `^20.1 || 22.x`, `18 - 20`."""

import re
from dataclasses import dataclass

Version = tuple[int, int, int]

_PART = r"(?:\d+|[xX*])"
_PARTIAL = re.compile(rf"v?(?P<major>{_PART})(?:\.(?P<minor>{_PART})(?:\.(?P<patch>{_PART}))?)?")
_COMPARATOR = re.compile(r"(?P<op>>=|<=|>|<|=|\^|~>?)?\s*(?P<version>v?[\dxX*][\d.xX*]*)")


@dataclass(frozen=True)
class Span:
    """From `low` on, and below `high` where that is not None."""

    low: Version = (0, 0, 0)
    high: Version | None = None

    def __contains__(self, version: object) -> bool:
        return isinstance(version, tuple) and version >= self.low and (self.high is None or version < self.high)

    def within(self, other: "Span") -> "Span":
        """What both allow."""
        highs = [high for high in (self.high, other.high) if high is not None]
        return Span(max(self.low, other.low), min(highs, default=None))


def spans(wanted: str) -> list[Span]:
    """What a range allows, one of them being enough. Raises `ValueError` where it is none."""
    return [_span(alternative.strip()) for alternative in wanted.split("||")]


def version(said: str) -> Version:
    """A whole version, `v20.1.0`. Raises `ValueError`."""
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)", said.strip())
    if match is None:
        raise ValueError(f"{said!r} is not a version of Node")
    return int(match[1]), int(match[2]), int(match[3])


def _span(alternative: str) -> Span:
    low, dash, high = alternative.partition(" - ")
    if dash:
        return Span(_partial(low).low, _partial(high).high)
    found, position = Span(), 0
    while position < len(alternative):
        match = _COMPARATOR.match(alternative, position)
        if match is None:
            raise ValueError(f"{alternative!r} is not a range of versions of Node")
        found = found.within(_compared(match["op"] or "=", match["version"]))
        position = match.end()
        while alternative[position : position + 1] in {" ", ","} and position < len(alternative):
            position += 1
    return found


def _compared(op: str, said: str) -> Span:
    span, parts = _partial(said), _numbers(said)
    if op == ">=":
        return Span(span.low)
    if op == ">":
        return Span(span.high or span.low)
    if op == "<":
        return Span(high=span.low)
    if op == "<=":
        return Span(high=span.high)
    if op == "^" and parts:
        first = next((place for place, number in enumerate(parts) if number), len(parts) - 1)
        return Span(span.low, _after(parts[: first + 1]))
    if op.startswith("~") and parts:
        return Span(span.low, _after(parts[:2]))
    return span


def _partial(said: str) -> Span:
    """All versions that begin so."""
    numbers = _numbers(said.strip())
    low = (*numbers, 0, 0, 0)
    return Span((low[0], low[1], low[2]), _after(numbers) if numbers else None)


def _numbers(said: str) -> list[int]:
    match = _PARTIAL.fullmatch(said)
    if match is None:
        raise ValueError(f"{said!r} is not a version of Node")
    numbers: list[int] = []
    for part in match.groups():
        if part is None or not part.isdigit():
            break
        numbers.append(int(part))
    return numbers


def _after(numbers: list[int]) -> Version:
    """The first version that no longer begins so."""
    last = len(numbers) - 1
    up = [*numbers[:last], numbers[last] + 1, 0, 0]
    return up[0], up[1], up[2]
