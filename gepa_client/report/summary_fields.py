"""What both forms of the report tell: the facts of a run, and what changed from parent to child."""

import difflib

from evolverpc_common.display_text import line, plain
from gepa_client.evolution.labels import code_of, texts_of
from gepa_client.journal.run_events import Mutated
from gepa_client.report import failure_lines, model_calls
from gepa_client.report.record import RunRecord

ENDED_SHOWN = 4000
"""Characters of why a run ended."""


def diff(before: str, after: str) -> list[str]:
    """The lines of a unified diff, without its two lines of file names; empty where nothing changed."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    return [plain(text) for text in list(lines)[2:]]


def changes(record: RunRecord, index: int) -> list[tuple[str, int, list[str]]]:
    """`(component, parent, diff)` for every text in which a candidate differs from a parent; its code is told apart."""
    candidate = record.candidates[index]
    return [
        (component, parent, lines)
        for parent in candidate.parents
        for component, text in texts_of(candidate.texts).items()
        if (lines := diff(texts_of(record.candidates[parent].texts).get(component, ""), text))
    ]


def facts(record: RunRecord) -> list[tuple[str, str]]:
    """What a reader wants to know first, as label and plain text; why the run ended may take several lines."""
    started, finished = record.started, record.finished
    found: list[tuple[str, str]] = []
    if started is not None:
        version = f", version {started.program_version}," if started.program_version else ""
        found.append(("program", line(f"{started.program}{version} behind {started.server}, {started.url}", 300)))
    if (headline := record.headline()) is not None:
        found.append(("score", f"{headline.seed:.4g} -> {headline.best:.4g} ({headline.rows})"))
    if record.seed is not None and record.best is not None:
        found.append(
            ("validation", f"{record.seed.score:.4g} -> {record.best.score:.4g}, candidate {record.best.index}")
        )
    if record.best is not None and (code := code_of(record.best.texts)) is not None:
        found.append(("best code", line(code, 300)))
    budget = f" of {record.budget}" if record.budget is not None else ""
    over = record.budget is not None and record.metric_calls > record.budget
    why = " (the budget is checked between iterations)" if over else ""
    found.append(("metric calls", f"{record.metric_calls}{budget}{why}, {record.active_seconds:.1f} s"))
    found.append(
        (
            "candidates",
            f"{len(record.candidates)} kept, {len(record.front)} on the Pareto front, "
            f"{_count(len(record.rejected), 'proposal')} not kept, "
            f"{_count(record.without_proposal, 'iteration')} without a proposal, "
            f"{_count(len(record.failures), 'failed iteration')}",
        )
    )
    if record.failed_examples is not None:
        found.append(("failed examples", failure_lines.fact(record.failed_examples)))
    if record.mutations:
        made = sum(isinstance(mutation, Mutated) for mutation in record.mutations)
        found.append(("changes of code", f"{made} made, {len(record.mutations) - made} refused"))
    for label, text in (("model calls", model_calls.fact(record)), ("refused", model_calls.refused(record))):
        if text is not None:
            found.append((label, text))
    if started is not None:
        sizes = ", ".join(f"{size} {split}" for split, size in started.splits.items())
        found.append(("rows", sizes))
        found.append(("proposals by", line(started.proposer, 200)))
    if finished is not None:
        costs = (
            ("evaluation", finished.evaluation_usd),
            ("reflection", finished.reflection_usd),
            ("changes of code", finished.mutation_usd),
            ("models that programs called", finished.model_usd),
        )
        if known := ", ".join(f"${cost:.4f} {what}" for what, cost in costs if cost is not None):
            found.append(("cost", known))
    if finished is not None:
        ended = finished.status if finished.reason is None else f"{finished.status}: {finished.reason}"
        found.append(("ended", plain(ended.strip(), limit=ENDED_SHOWN)))
    return found


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
