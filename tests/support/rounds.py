"""How often a test that only repeats itself is run: once by default, as often as it asks for by `make faults`."""

import os

ALL = "FAULT_ROUNDS" in os.environ
FAULT_ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
"""Rounds of a test that takes as many as are asked for."""


def rounds(number: int) -> range:
    """The seeds of a test: `number` of them by `make faults`, one otherwise."""
    return range(number if ALL else 1)
