"""How long each kind of call is waited for, wherever it is made."""

from protocol import Limits

UNLIMITED_EXAMPLE_S = 600.0
"""Seconds one example is waited for where the server states no deadline of its own."""

QUEUE_ALLOWANCE_S = 60.0
"""Seconds beyond the examples' own deadline that a call may spend queued behind other clients."""

CALL_TIMEOUT_S = 600.0
"""Seconds for a call that runs no examples: a reflective dataset, proposals, the end of a run."""


def evaluation_s(limits: Limits, examples: int) -> float:
    """Seconds that an `evaluate` of so many examples is waited for."""
    return (limits.example_timeout_s or UNLIMITED_EXAMPLE_S) * examples + QUEUE_ALLOWANCE_S
