"""How long each kind of call is waited for, wherever it is made."""

from protocol import Limits

UNLIMITED_EXAMPLE_S = 600.0
"""Seconds one example is waited for where the server states no deadline of its own."""

ATTEMPTS = 3
"""How often an example's own deadline may pass within a call: servers run it again, alone, if others may have held it
up or ended its process, and those that wait for the same may come first."""

QUEUE_ALLOWANCE_S = 60.0
"""Seconds beyond the examples' own deadline that a call may spend queued behind other clients."""

CALL_TIMEOUT_S = 600.0
"""Seconds for a call that runs no examples: a reflective dataset, proposals, the end of a run."""


def evaluation_s(limits: Limits, examples: int) -> float:
    """Seconds that an `evaluate` of so many examples is waited for."""
    return (limits.example_timeout_s or UNLIMITED_EXAMPLE_S) * ATTEMPTS * examples + QUEUE_ALLOWANCE_S
