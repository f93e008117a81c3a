"""Prices of model calls: as configured, else from litellm's bundled table, read without importing litellm."""

import importlib.metadata
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import orjson

TABLE = "litellm/model_prices_and_context_window_backup.json"

_MODES = frozenset({"chat", "responses", "completion", "embedding"})
_ABOVE = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")


@dataclass(frozen=True)
class TokenCounts:
    """What a provider counted for one call; no token is in two of the fields.

    `input`: neither read from nor written to a cache. `cached`: read from one. `written`: written to one, of which
    `written_hour` for an hour rather than for minutes. `output`: reasoning included.
    """

    input: int = 0
    cached: int = 0
    written: int = 0
    written_hour: int = 0
    output: int = 0

    @property
    def all_input(self) -> int:
        """All tokens that were read, cached or not."""
        return self.input + self.cached + self.written


@dataclass(frozen=True)
class TokenPrices:
    """US dollars per token, one for each kind of `TokenCounts`."""

    input: float
    cached: float
    written: float
    written_hour: float
    output: float

    def cost(self, tokens: TokenCounts) -> float:
        """Return the cost in US dollars."""
        return (
            tokens.input * self.input
            + tokens.cached * self.cached
            + (tokens.written - tokens.written_hour) * self.written
            + tokens.written_hour * self.written_hour
            + tokens.output * self.output
        )

    def most(self, inputs: int, outputs: int, *, for_an_hour: bool) -> float:
        """Return the highest cost in US dollars. `for_an_hour`: the input may be cached for an hour."""
        hour = self.written_hour if for_an_hour else 0.0
        return inputs * max(self.input, self.cached, self.written, hour) + outputs * self.output


@dataclass(frozen=True)
class ModelPrice:
    """The price of one model. `above`: prices for calls with more input tokens than the number beside them, ascending.

    `most_input`, `most_output`: tokens that one call can have at most; None if unknown.
    """

    rates: TokenPrices
    above: tuple[tuple[int, TokenPrices], ...] = ()
    most_input: int | None = None
    most_output: int | None = None
    takes_images: bool = False
    """As litellm lists it."""

    def cost(self, tokens: TokenCounts, calls: int = 1) -> float:
        """Return what so many calls cost together, in US dollars; `tokens`: of all of them, about as many each."""
        return self._for(tokens.all_input // max(calls, 1)).cost(tokens)

    def most(self, inputs: int, outputs: int, *, for_an_hour: bool = False) -> float:
        """Return the most that a call with so many tokens can cost, in US dollars."""
        both = (self.rates, self._for(inputs))
        return max(rates.most(inputs, outputs, for_an_hour=for_an_hour) for rates in both)

    def _for(self, inputs: int) -> TokenPrices:
        fitting = [rates for least, rates in self.above if inputs > least]
        return fitting[-1] if fitting else self.rates


class PriceTable:
    """The prices of all models that have one."""

    def __init__(self, given: Mapping[str, tuple[float, float]], table: Mapping[str, Any] | None = None) -> None:
        self._given = given
        self._read = table

    @cached_property
    def _table(self) -> Mapping[str, Any]:
        return bundled() if self._read is None else self._read  # 3 MB: read only where it is needed

    def of(self, provider: str, model: str) -> ModelPrice | None:
        """Return the price of a model as a request names it; None if unknown."""
        for name in (f"{provider}/{model}", model):
            if name in self._given:
                into, out = (usd / 1e6 for usd in self._given[name])
                flat = TokenPrices(into, into, into, into, out)
                known = self._bundled(provider, model)
                return ModelPrice(flat) if known is None else ModelPrice(flat, (), known.most_input, known.most_output)
        return self._bundled(provider, model)

    def named(self, name: str) -> ModelPrice | None:
        """Return the price of a model by the name that programs use, with its provider before a `/` or alone."""
        provider, slash, model = name.partition("/")
        if slash and (price := self.of(provider, model)) is not None:
            return price
        entry = self._table.get(name)
        whose = entry.get("litellm_provider") if isinstance(entry, dict) else None
        return self.of(str(whose or ""), name)

    def _bundled(self, provider: str, model: str) -> ModelPrice | None:
        entry = self._entry(provider, model)
        return _read(entry) if entry is not None else None

    def _entry(self, provider: str, model: str) -> Mapping[str, Any] | None:
        named = self._table.get(f"{provider}/{model}")
        if named is None:
            # The plain name counts where the table means this very provider: others charge otherwise for the same name.
            named = self._table.get(model)
            whose = named.get("litellm_provider") if isinstance(named, dict) else None
            if whose not in (provider, f"text-completion-{provider}"):
                return None
        return named if isinstance(named, dict) and named.get("mode") in _MODES else None


def priced(usage: Mapping[str, Any], prices: "PriceTable") -> dict[str, Any]:
    """Return the `Usage` with `cost_usd` (US dollars), if it lacks one and every model in `models` has a price."""
    models = usage.get("models")
    if usage.get("cost_usd") is not None or not models:
        return dict(usage)
    costs = [_model_cost(name, taken, prices) for name, taken in models.items()]
    known = [cost for cost in costs if cost is not None]
    return {**usage, "cost_usd": sum(known)} if len(known) == len(costs) else dict(usage)


def _model_cost(name: str, taken: Mapping[str, Any], prices: "PriceTable") -> float | None:
    price = prices.named(name)
    read, output = taken.get("input_tokens"), taken.get("output_tokens")
    if price is None or read is None or output is None:
        return None
    parts = ("cached_input_tokens", "cache_write_tokens", "cache_write_hour_tokens")
    cached, written, for_an_hour = (taken.get(part) or 0 for part in parts)
    tokens = TokenCounts(max(read - cached - written, 0), cached, written, min(for_an_hour, written), output)
    return price.cost(tokens, taken.get("calls") or 1)


@cache
def bundled() -> Mapping[str, Any]:
    """Return the table that came with litellm; empty if that is not installed."""
    try:
        path = importlib.metadata.distribution("litellm").locate_file(TABLE)
        with open(str(path), "rb") as file:  # noqa: PTH123  what is located need not be a path of this system
            found = orjson.loads(file.read())
    except (importlib.metadata.PackageNotFoundError, FileNotFoundError):
        return {}
    return found if isinstance(found, dict) else {}


def _read(entry: Mapping[str, Any]) -> ModelPrice | None:
    rates = _rates(entry, "")
    if rates is None:
        return None
    above = []
    for name in entry:
        if match := _ABOVE.fullmatch(name):
            least = int(match[1])
            if more := _rates(entry, f"_above_{least}k_tokens"):
                above.append((least * 1000, more))
    return ModelPrice(
        rates,
        tuple(sorted(above, key=lambda pair: pair[0])),
        _count(entry.get("max_input_tokens")),
        _count(entry.get("max_output_tokens")),
        bool(entry.get("supports_vision")),
    )


def _rates(entry: Mapping[str, Any], ending: str) -> TokenPrices | None:
    def usd(name: str) -> float | None:
        found = entry.get(name + ending, entry.get(name))
        return float(found) if isinstance(found, int | float) else None

    into, out = usd("input_cost_per_token"), usd("output_cost_per_token")
    if into is None:
        return None
    if out is None:
        if entry.get("mode") != "embedding":
            return None
        out = 0.0
    cached, written = usd("cache_read_input_token_cost"), usd("cache_creation_input_token_cost")
    hour = entry.get("cache_creation_input_token_cost_above_1hr")
    written = into if written is None else written
    for_hour = max(float(hour), written) if isinstance(hour, int | float) else written
    return TokenPrices(into, into if cached is None else cached, written, for_hour, out)


def _count(found: object) -> int | None:
    return int(found) if isinstance(found, int | float) and found > 0 else None
