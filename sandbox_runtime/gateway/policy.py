"""What one run's sandboxes may do through the gateway."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Policy:
    """Bounds of one run, over all of its sandboxes.

    `models`: which may be called, `gpt-4o*` or `anthropic/claude-*`; empty: every one. `calls_per_minute`: None for no
    bound; a call waits up to `rate_wait_s` for its turn and is then answered 429. `cap_usd`: None for no bound.
    `prices`: `{model or provider/model: (US dollars per million tokens of input, and of output)}`, before the
    bundled ones. `ports`: which may be reached through the tunnel; None: all.

    Raises:
        ValueError: a bound is not above zero, or a price below it.
    """

    models: tuple[str, ...] = ()
    calls_per_minute: int | None = None
    rate_wait_s: float = 30.0
    cap_usd: float | None = None
    prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    ports: frozenset[int] | None = frozenset({80, 443})

    def __post_init__(self) -> None:
        if self.calls_per_minute is not None and self.calls_per_minute < 1:
            raise ValueError("calls_per_minute must be at least 1")
        if self.cap_usd is not None and not self.cap_usd > 0:
            raise ValueError("cap_usd must be above 0")
        for model, price in self.prices.items():
            if len(price) != 2 or not all(0 <= usd < float("inf") for usd in price):
                raise ValueError(f"the price of {model} must be two numbers: US dollars per million tokens in, and out")

    def allows(self, provider: str, model: str) -> bool:
        """Whether this model of this provider may be called."""
        names = (model, f"{provider}/{model}")
        return not self.models or any(fnmatchcase(name, pattern) for pattern in self.models for name in names)
