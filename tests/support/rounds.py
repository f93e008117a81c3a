"""How often a test that only repeats itself is run: once by default, as often as it asks for by `make faults`."""

import os

ALL = "FAULT_ROUNDS" in os.environ


def rounds(number: int) -> range:
    """The seeds of a test: `number` of them by `make faults`, one otherwise."""
    return range(number if ALL else 1)
