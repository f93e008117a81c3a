"""The echo as a plain Python program, for the row with a hop to a program process."""

seed_candidate = {"rules": ""}


def run(example, candidate, trace):
    """Give the row back as the trajectory."""
    del candidate
    trace.append(example)
    return "pending_transfer"


def score(example, output):
    """Every example is right."""
    del example, output
    return 1.0
