"""Judge scores that are all 0: the program is broken, or not good yet."""

from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue

from gepa_client.journal.requests import digest_of


def output_fault(results: Sequence[dict[str, Any]]) -> str | None:
    """Return how the outputs show that the program or its score function is broken; None if they do not.

    `results`: the contract's results, of which every scored one scored 0. Failed examples count as missing outputs. A
    single output is never reported as equal to others.
    """
    outputs = [result.get("output") for result in results if result["status"] == "ok"]
    written = [output for output in outputs if not _is_empty(output)]
    if not written:
        return "every output is empty"
    if len(outputs) > 1 and len({digest_of(output) for output in outputs}) == 1:
        return "every output is the same"
    if len(written) > 1 and len({digest_of(output) for output in written}) == 1:
        return "every output is either empty or the same"
    return None


def spread_over(untried: Sequence[int], count: int) -> list[int]:
    """Return `count` of the indices, evenly spread over all of them; all if there are no more."""
    count = min(count, len(untried))
    return [untried[number * len(untried) // count] for number in range(count)]


def _is_empty(value: JsonValue) -> bool:
    """Return whether a value is null, a blank text, or a list or an object of such values alone."""
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    if isinstance(value, list):
        return all(map(_is_empty, value))
    return value is None or (isinstance(value, str) and not value.strip())
