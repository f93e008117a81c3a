"""Student's t distribution."""

import math
from statistics import NormalDist


def cdf(t: float, freedom: int) -> float:
    """Return P(T <= t) for a whole number of degrees of freedom.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4.
    """
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * cosine * cosine
        total += term
    inside = (angle + sine * total) * 2 / math.pi if odd else sine * total
    return 0.5 + inside / 2


def quantile(probability: float, freedom: int) -> float:
    """Return the t with P(T <= t) = `probability`, to 1e-9 of its size; `probability` lies between 0.5 and 1."""
    low, high = NormalDist().inv_cdf(probability), 1.0
    while cdf(high, freedom) < probability:
        low, high = max(low, high), 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if cdf(middle, freedom) < probability else (low, middle)
    return high
