"""Whether the examples in flight are stuck: they wait much longer than usual, or time out one after the other."""

from gepa_client.page.page_events import Now
from gepa_client.run.run_counters import LONG_S

STUCK_FACTOR = 10
"""How much longer than usual an example takes that is stuck."""

STUCK_S, UNKNOWN_S = 30.0, 120.0
"""Seconds that examples wait at least before they are stuck, and if nothing is known of how long they take."""

REPEATED = 2
"""After so many time-outs in a row, examples that wait for `LONG_S` are stuck."""


def stuck_s(now: Now) -> float | None:
    """Return seconds without a result other than time-outs, if examples wait longer than they usually take."""
    if now.lost or now.waiting_for is not None or not now.in_flight:
        return None
    waited = now.longest[0].seconds if now.longest else 0.0
    quiet = waited if now.no_result_s is None else now.no_result_s
    if now.timeouts >= REPEATED:
        return quiet if quiet >= LONG_S else None
    usual = UNKNOWN_S if now.usual_s is None else STUCK_FACTOR * now.usual_s
    return quiet if min(quiet, waited) >= max(usual, STUCK_S) else None
