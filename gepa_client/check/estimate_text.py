"""How the times and costs of an estimate are written."""

CENT = 0.01
"""The least amount that is printed as a figure."""


def span(seconds: float) -> str:
    """Return `32 ms`, `3.2 s`, `5 min`, `2.5 h`."""
    if seconds < 0.0995:
        return f"{_two_digits(seconds * 1000)} ms"
    if seconds < 120:
        return f"{_two_digits(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def about_usd(usd: float) -> str:
    """Return `about $0.25`, `less than $0.01`."""
    return f"about ${usd:.2f}" if usd >= CENT or usd == 0 else "less than $0.01"


def _two_digits(number: float) -> str:
    """Return `0.25`, `3.2`, `32`, `110`: never an exponent."""
    return f"{number:.{2 if number < 0.995 else 1 if number < 9.95 else 0}f}"
