"""What the reports and the terminal share: the facts of a run, text changes, failures, and model calls."""

import difflib

from evolverpc_common.display_text import counted, line, plain
from gepa_client.evolution.names import code_label, component_texts
from gepa_client.journal.run_events import CallRefused, FailedExamples, FailureGroup, ModelTally, Mutated, Started
from gepa_client.report.record import RunRecord

ENDED_SHOWN = 4000
"""Characters of why a run ended."""

LONGEST_FAILURE = 20_000

FAILURES_NAMED = 10
"""Rows and candidates of a group that are named."""

MODEL_CALL_COLUMNS = ("model", "calls", "failed", "tokens in", "tokens out", "cost")


def text_diff(before: str, after: str) -> list[str]:
    """Return the lines of a unified diff, without its two lines of file names; empty if nothing changed."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    return [plain(text) for text in list(lines)[2:]]


def text_changes(record: RunRecord, index: int) -> list[tuple[str, int, list[str]]]:
    """Return `(component, parent, diff)` for every text in which a candidate differs from a parent."""
    candidate = record.candidates[index]
    return [
        (component, parent, lines)
        for parent in candidate.parents
        for component, text in component_texts(candidate.texts).items()
        if (lines := text_diff(component_texts(record.candidates[parent].texts).get(component, ""), text))
    ]


def summary_facts(record: RunRecord) -> list[tuple[str, str]]:
    """Return the main facts as label and plain text; the reason of the end may take several lines."""
    started, finished, seed, best = record.started, record.finished, record.seed, record.best
    headline, failed = record.headline(), record.failed_examples
    code = code_label(best.texts) if best is not None else None
    made = sum(isinstance(mutation, Mutated) for mutation in record.mutations)
    facts = {
        "program": _program(started) if started is not None else None,
        "score": f"{headline.seed:.4g} -> {headline.best:.4g} ({headline.rows})" if headline is not None else None,
        "validation": f"{seed.score:.4g} -> {best.score:.4g}, candidate {best.index}" if seed and best else None,
        "best code": line(code, 300) if code is not None else None,
        "metric calls": f"{record.metric_calls:,}{budget_note(record)}, {record.active_seconds:.1f} s",
        "candidates": f"{len(record.candidates)} kept, {len(record.front)} on the Pareto front, "
        f"{counted(len(record.rejected), 'proposal')} not kept, "
        f"{counted(record.without_proposal, 'iteration')} without a proposal, "
        f"{counted(len(record.failures), 'failed iteration')}",
        "failed examples": failure_summary(failed) if failed is not None else None,
        "changes of code": f"{made} made, {len(record.mutations) - made} refused" if record.mutations else None,
        "model calls": model_call_summary(record),
        "refused": refusal_summary(record),
    }
    if started is not None:
        facts["rows"] = ", ".join(f"{size} {split}" for split, size in started.splits.items())
        facts["proposals by"] = line(started.proposer, 200)
    if finished is not None:
        costs = {
            "evaluation": finished.evaluation_usd,
            "reflection": finished.reflection_usd,
            "changes of code": finished.mutation_usd,
            "models that programs called": finished.model_usd,
        }
        facts["cost"] = ", ".join(f"${cost:.4f} {what}" for what, cost in costs.items() if cost is not None) or None
        ended = finished.status if finished.reason is None else f"{finished.status}: {finished.reason}"
        facts["ended"] = plain(ended.strip(), limit=ENDED_SHOWN)
    return [(label, text) for label, text in facts.items() if text is not None]


def budget_note(record: RunRecord) -> str:
    """Return ` of 1,500`, with the reason if more was used; empty without a budget.

    GEPA checks the budget between iterations, and finishes what has begun.
    """
    budget, last = record.budget, record.candidates[-1] if record.candidates else None
    if budget is None:
        return ""
    if record.metric_calls <= budget or record.finished is None or not record.finished.search_complete:
        return f" of {budget:,}"
    begun = "the last iteration"
    if last is not None and last.metric_calls > budget:
        begun = f"the validation of {'the seed' if last.index == 0 else f'candidate {last.index}'}"
    return f" of {budget:,} ({begun} had begun and was finished)"


def _program(started: Started) -> str:
    version = f", version {started.program_version}," if started.program_version else ""
    return line(f"{started.program}{version} behind {started.server}, {started.url}", 300)


def failure_summary(failed: FailedExamples) -> str:
    """`6 of 60 evaluations: 5 KeyError, 1 timeout`; texts as they are."""
    groups = ", ".join(f"{group.count:,} {failure_name(group)}" for group in failed.groups[:FAILURES_NAMED])
    return line(f"{failed.failed:,} of {failed.evaluated:,} evaluations: {groups}")


def failure_name(group: FailureGroup) -> str:
    """Return the exception's type, or `timeout`, with its type if it has another one."""
    if group.status == "program_error":
        return group.type
    return "timeout" if group.type.lower() in ("timeout", "timeouterror") else f"timeout ({group.type})"


def failure_places(group: FailureGroup, named: int = FAILURES_NAMED) -> str:
    """`5 examples; on 3 rows: val 1, val 4, train 1; by candidates: 0 (4 times), 2 (once)`."""
    rows = ", ".join(group.rows[:named]) + (", ..." if group.row_count > min(named, len(group.rows)) else "")
    times = [
        f"{candidate} ({'once' if count == 1 else f'{count:,} times'})" for candidate, count in group.candidates.items()
    ]
    by = ", ".join(times[:named]) + (", ..." if len(times) > named else "")
    return line(
        f"{counted(group.count, 'example')}; on {counted(group.row_count, 'row')}: {rows}; "
        f"by {'candidate' if len(times) == 1 else 'candidates'}: {by}",
        LONGEST_FAILURE,
    )


def first_failure(group: FailureGroup) -> str:
    """Return the first failure: row, candidate and message, with its traceback on further lines."""
    text = f"the first: row {group.row}, candidate {group.candidate}: {group.type}: {group.message}"
    return f"{text}\n{group.traceback.rstrip()}" if group.traceback else text


def model_call_rows(record: RunRecord) -> list[tuple[str, ...]]:
    """Return a row for each model, the most expensive first, and their sum if there are several."""
    if record.model_calls is None:
        return []
    by_model = sorted(record.model_calls.by_model.items(), key=lambda named: (-named[1].cost_usd, named[0]))
    drawn = [_row(line(name, 200), tally) for name, tally in by_model]
    return [*drawn, _row("in all", record.model_calls.total)] if len(drawn) > 1 else drawn


def model_call_summary(record: RunRecord) -> str | None:
    """Return calls and cost in one line; None without calls."""
    if record.model_calls is None or not record.model_calls.total.calls:
        return None
    total = record.model_calls.total
    failed = f" ({total.failed:,} failed)" if total.failed else ""
    tokens = f"{total.input_tokens:,} tokens in, {total.output_tokens:,} out"
    return f"{total.calls:,}{failed}, {tokens}, {model_cost(total)}"


def refusal_summary(record: RunRecord) -> str | None:
    """How much was refused; None where nothing was."""
    times = refusal_count(record)
    return f"{times:,} {'time' if times == 1 else 'times'}" if times else None


def refusal_count(record: RunRecord) -> int:
    """Return the number of refusals by the totals, or by the events if those are newer."""
    events = sum(refusal.times for refusal in record.refusals)
    return max(events, record.model_calls.refused if record.model_calls is not None else 0)


def refusal_text(event: CallRefused) -> str:
    """One refusal in a line, its texts as they are."""
    again = f" ({event.times:,} times)" if event.times > 1 else ""
    return line(f"{event.what} for {event.sandbox}: {event.reason}{again}")


def model_cost(tally: ModelTally) -> str:
    """Return `$0.0123`, `$0.0123 + 12 unpriced` or `unknown (12 unpriced)`; an unknown price is never zero."""
    if not tally.unpriced:
        return f"${tally.cost_usd:.4f}"
    unpriced = f"{tally.unpriced:,} unpriced"
    return f"${tally.cost_usd:.4f} + {unpriced}" if tally.cost_usd else f"unknown ({unpriced})"


def _row(name: str, tally: ModelTally) -> tuple[str, ...]:
    figures = (tally.calls, tally.failed, tally.input_tokens, tally.output_tokens)
    return (name, *(f"{figure:,}" for figure in figures), model_cost(tally))
