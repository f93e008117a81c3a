"""How long an endpoint gets no calls after it failed or answered HTTP 429, and how pauses between attempts grow."""

import random
from typing import Literal

from protocol.errors import Overloaded

FIRST_S = 0.5
LONGEST_S = 30.0
LONGEST_REQUESTED_S = 60.0
"""The longest pause that an overloaded server may request at a time."""

MOST_GROWTH = 10
"""Pauses after which the mean does not grow any more."""

Cooldown = Literal["lost", "overloaded", "failing", "broken", "unreached"]
"""Why an endpoint gets no calls for a while; `unreached`: it has never answered."""

_random = random.SystemRandom()  # never GEPA's global generator


def cooldown_s(earlier: int, requested_s: float) -> float:
    """Return the seconds of a pause after `earlier` ones without a success between them.

    Each is about twice as long as the one before, and at least as long as the server requests.
    """
    return max(growing_s(FIRST_S, 2.0, earlier), min(requested_s, LONGEST_REQUESTED_S))


def growing_s(first_s: float, factor: float, earlier: int) -> float:
    """Return the seconds of a pause after `earlier` ones: about `factor` times the one before, up to `LONGEST_S`."""
    return min(first_s * factor ** min(earlier, MOST_GROWTH), LONGEST_S) * _random.uniform(0.75, 1.25)


def requested_pause_s(error: Overloaded) -> float:
    """Return the seconds that an overloaded server requests clients to wait."""
    requested = error.details.get("retry_after_s")
    return float(requested) if isinstance(requested, int | float) else 0.0
