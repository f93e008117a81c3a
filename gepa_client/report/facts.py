"""What both forms of the report tell: the facts of a run, and what changed from parent to child."""

import difflib

from gepa_client.report.record import RunRecord
from gepa_client.text import line, plain


def diff(before: str, after: str) -> list[str]:
    """The lines of a unified diff, without its two lines of file names; empty where nothing changed."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    return [plain(text) for text in list(lines)[2:]]


def changes(record: RunRecord, index: int) -> list[tuple[str, int, list[str]]]:
    """`(component, parent, diff)` for every component in which a candidate differs from a parent."""
    candidate = record.candidates[index]
    return [
        (component, parent, lines)
        for parent in candidate.parents
        for component, text in candidate.texts.items()
        if (lines := diff(record.candidates[parent].texts.get(component, ""), text))
    ]


def facts(record: RunRecord) -> list[tuple[str, str]]:
    """What a reader wants to know first, as label and plain text."""
    started, finished = record.started, record.finished
    found: list[tuple[str, str]] = []
    if started is not None:
        version = f" {started.program_version}" if started.program_version else ""
        found.append(("program", line(f"{started.program}{version} behind {started.server}, {started.url}", 300)))
    if (headline := record.headline()) is not None:
        found.append(("score", f"{headline.seed:.4g} -> {headline.best:.4g} ({headline.rows})"))
    if record.seed is not None and record.best is not None:
        found.append(
            ("validation", f"{record.seed.score:.4g} -> {record.best.score:.4g}, candidate {record.best.index}")
        )
    budget = f" of {record.budget}" if record.budget is not None else ""
    found.append(("metric calls", f"{record.metric_calls}{budget}, {record.seconds:.1f} s"))
    found.append(
        (
            "candidates",
            f"{len(record.candidates)} kept, {len(record.front)} on the Pareto front, {len(record.rejected)} proposals "
            f"not kept, {record.without_proposal} iterations without a proposal, {len(record.failures)} failures",
        )
    )
    if started is not None:
        sizes = ", ".join(f"{size} {split}" for split, size in started.splits.items())
        found.append(("rows", sizes))
        found.append(("proposals by", line(started.proposer, 200)))
    if finished is not None and (finished.evaluation_usd or finished.reflection_usd):
        found.append(
            ("cost", f"${finished.evaluation_usd or 0:.4f} evaluation, ${finished.reflection_usd or 0:.4f} reflection")
        )
    if finished is not None:
        ended = finished.status if finished.reason is None else f"{finished.status}: {finished.reason}"
        found.append(("ended", line(ended, 1000)))
    return found
