"""How to read an interval of a certificate whose end lies beyond the scale of the scores.

The intervals follow from how much the scores vary, and are not limited to a scale, as no program declares one. An end
is not cut: that would be a claim about the scale. A reader who knows the scale may cut it there: the true mean lies on
it, so the interval holds it as often as before.
"""

from gepa_client.certificate.certificate import Certificate

LOWEST = 0.0


def estimate_note(found: Certificate, perfect: float) -> str | None:
    """Return how to read the interval of the best score; None if no end is above `perfect` or below 0."""
    validation = found.validation
    if validation.estimate is None or validation.low is None or validation.high is None:
        return None
    if not _on_scale(found, perfect):
        return None
    return _note("score", validation.low, validation.high, LOWEST, perfect)


def difference_note(found: Certificate, perfect: float) -> str | None:
    """Return the same of the interval of the difference, which lies between -`perfect` and `perfect`."""
    if not _on_scale(found, perfect):
        return None
    return _note("difference", found.test.low, found.test.high, LOWEST - perfect, perfect - LOWEST)


def _on_scale(found: Certificate, perfect: float) -> bool:
    """Whether the mean scores lie between 0 and `perfect`; else the scale is another one."""
    means = (found.validation.seed, found.validation.best, found.test.seed, found.test.best)
    return all(LOWEST <= mean <= perfect for mean in means)


def _note(what: str, low: float, high: float, lowest: float, highest: float) -> str | None:
    beyond = []
    if high > highest:
        beyond.append(f"no {what} can be above {highest:g}, read {high:.4g} as {highest:g}")
    if low < lowest:
        beyond.append(f"no {what} can be below {lowest:g}, read {low:.4g} as {lowest:g}")
    return f"the interval can end beyond the scale: if {', and if '.join(beyond)}" if beyond else None
