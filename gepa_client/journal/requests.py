"""What GEPA asks for, as a digest that tells two requests apart and in words that people can compare."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gepa_client.journal.entries import EVALUATE

DIGEST_BYTES = 16
SHOWN = 8
"""Characters of a candidate's digest that are shown."""


@dataclass(frozen=True, slots=True)
class Request:
    """One thing GEPA asks for. `kind`, `digest`, `about`: see `Entry`."""

    kind: str
    digest: str
    about: str


def digest_of(value: Any) -> str:
    """A digest of any JSON value, in hex; the order of keys does not matter."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).hexdigest()


def evaluate_digest(candidate: Mapping[str, str], example: Mapping[str, Any], trace: bool) -> str:
    """The digest of `evaluate_request` for a candidate and an example as it goes over the wire."""
    return _evaluate(digest_of(candidate), digest_of(example), trace)


def evaluate_request(candidate_digest: str, example_digest: str, example_id: str, trace: bool) -> Request:
    """One example with one candidate; takes digests, as a run asks for the same ones over and over."""
    traced = ", traced," if trace else ""
    about = f"evaluate example {example_id!r}{traced} with candidate {candidate_digest[:SHOWN]}"
    return Request(EVALUATE, _evaluate(candidate_digest, example_digest, trace), about)


def other_request(kind: str, about: str, *parts: Any) -> Request:
    """Any other request; `parts`: whatever its answer depends on, as JSON."""
    return Request(kind, digest_of([kind, *parts]), about)


def _evaluate(candidate_digest: str, example_digest: str, trace: bool) -> str:
    text = f"evaluate {candidate_digest} {example_digest} {trace}"
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()
