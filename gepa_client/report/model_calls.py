"""What programs called through a gateway, and what it refused them: as rows, for whoever draws them."""

from evolverpc_common.display_text import line
from gepa_client.journal.run_events import CallRefused, ModelTally
from gepa_client.report.record import RunRecord

COLUMNS = ("model", "calls", "failed", "tokens in", "tokens out", "cost")


def rows(record: RunRecord) -> list[tuple[str, ...]]:
    """A row for each model, the dearest first, and with more than one their sum; texts as they are."""
    if record.model_calls is None:
        return []
    by_model = sorted(record.model_calls.by_model.items(), key=lambda named: (-named[1].cost_usd, named[0]))
    drawn = [_row(line(name, 200), tally) for name, tally in by_model]
    return [*drawn, _row("in all", record.model_calls.total)] if len(drawn) > 1 else drawn


def fact(record: RunRecord) -> str | None:
    """Calls and money in one line; None where nothing was called."""
    if record.model_calls is None or not record.model_calls.total.calls:
        return None
    total = record.model_calls.total
    failed = f" ({total.failed:,} failed)" if total.failed else ""
    tokens = f"{total.input_tokens:,} tokens in, {total.output_tokens:,} out"
    return f"{total.calls:,}{failed}, {tokens}, {cost(total)}"


def refused(record: RunRecord) -> str | None:
    """How much was refused; None where nothing was."""
    times = times_refused(record)
    return f"{times:,} {'time' if times == 1 else 'times'}" if times else None


def times_refused(record: RunRecord) -> int:
    """As the totals say, or the events where those came after them."""
    told = sum(refusal.times for refusal in record.refusals)
    return max(told, record.model_calls.refused if record.model_calls is not None else 0)


def refusal(event: CallRefused) -> str:
    """One refusal in a line, its texts as they are."""
    again = f" ({event.times:,} times)" if event.times > 1 else ""
    return line(f"{event.what} for {event.sandbox}: {event.reason}{again}")


def cost(tally: ModelTally) -> str:
    """`$0.0123`, `$0.0123 + 12 unpriced`, `unknown (12 unpriced)`: what is not known is said, and never zero."""
    if not tally.unpriced:
        return f"${tally.cost_usd:.4f}"
    unpriced = f"{tally.unpriced:,} unpriced"
    return f"${tally.cost_usd:.4f} + {unpriced}" if tally.cost_usd else f"unknown ({unpriced})"


def _row(name: str, tally: ModelTally) -> tuple[str, ...]:
    figures = (tally.calls, tally.failed, tally.input_tokens, tally.output_tokens)
    return (name, *(f"{figure:,}" for figure in figures), cost(tally))
