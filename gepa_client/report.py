"""What a run found, to read: `report.md` for a terminal or a pull request, `report.html` with pictures."""

import difflib
from pathlib import Path

from gepa_client import report_page
from gepa_client.folder import REPORT, REPORT_PAGE, write_text
from gepa_client.record import RunRecord
from gepa_client.text import line, plain


def write(output: Path, record: RunRecord) -> list[str]:
    """Write both reports; returns their names."""
    write_text(output / REPORT, markdown(record))
    write_text(output / REPORT_PAGE, report_page.html(record))
    return [REPORT, REPORT_PAGE]


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


def markdown(record: RunRecord) -> str:
    """The report as Markdown; texts from elsewhere stand in code blocks they cannot end."""
    parts = [f"# Run {line(record.started.run_id, 200) if record.started else ''}".rstrip(), ""]
    parts += [f"- {label}: {_code(text)}" for label, text in facts(record)]
    if record.finalized is not None:
        said = record.finalized.error or record.finalized.message or "nothing"
        parts.append(
            f"- the program was told, and {'failed' if record.finalized.error else 'said'}: {_code(line(said))}"
        )
    if record.warnings:
        parts += ["", "## Warnings", "", *(f"- {_code(line(message))}" for message in record.warnings)]
    if record.best is not None:
        parts += ["", f"## Best candidate ({record.best.index})"]
        for component, text in record.best.texts.items():
            parts += ["", f"Component {_code(line(component, 200))}:", "", *_block(plain(text).splitlines(), "text")]
    accepted = record.candidates[1:]
    if accepted:
        parts += [
            "",
            "## Accepted candidates",
            "",
            "| candidate | parents | score | metric calls |",
            "|---|---|---|---|",
        ]
        parts += [
            f"| {candidate.index} | {_parents(candidate.parents)} | {candidate.score:.4g} | {candidate.metric_calls} |"
            for candidate in record.candidates
        ]
    for candidate in accepted:
        parts += ["", f"### Candidate {candidate.index}, score {candidate.score:.4g}"]
        for component, parent, lines in changes(record, candidate.index):
            parts += ["", f"{_code(line(component, 200))} against candidate {parent}:", "", *_block(lines, "diff")]
    if record.failures:
        parts += ["", "## Failures"]
        for failure in record.failures[:20]:
            parts += ["", f"Iteration {failure.iteration}, {_code(line(failure.step, 100))}:", ""]
            parts += _block(plain(f"{failure.message}\n{failure.details or ''}").splitlines(), "text")
    return "\n".join(parts) + "\n"


def _parents(parents: list[int]) -> str:
    return ", ".join(str(parent) for parent in parents) or "-"


def _code(text: str) -> str:
    """Inline code that nothing inside can end."""
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _block(lines: list[str], language: str) -> list[str]:
    fence = "`" * max(3, _longest_run("\n".join(lines)) + 1)
    return [f"{fence}{language}", *lines, fence]


def _longest_run(text: str) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
