"""The report as Markdown, for a terminal or a pull request."""

import re

from evolverpc_common.display_text import line, plain
from gepa_client.evolution.names import component_texts
from gepa_client.journal.run_events import Mutated, MutationRejected
from gepa_client.report import summary_fields as fields
from gepa_client.report.record import (
    DIFF_SHOWN,
    REFUSED_DIFF_SHOWN,
    REFUSED_SHOWN,
    RunRecord,
    change_of,
    change_origin,
    change_outcome,
    changes_not_kept,
    full_diff_command,
    omitted_changes,
)


def markdown(record: RunRecord) -> str:
    """Return the report as Markdown; texts of servers and models stand in code blocks they cannot end."""
    parts = [f"# Run {line(record.started.run_id, 200) if record.started else ''}".rstrip(), ""]
    for label, text in fields.summary_facts(record):
        parts += [f"- {label}: {_code(text)}"] if "\n" not in text else _long(label, text)
    if record.finalized is not None:
        answer = record.finalized.error or record.finalized.message or "no message"
        parts.append(f"- finalize{' failed' if record.finalized.error else ''}: {_code(line(answer))}")
    if record.warnings:
        parts += ["", "## Warnings", "", *(f"- {_code(line(message))}" for message in record.warnings)]
    if calls := fields.model_call_rows(record):
        parts += [
            "",
            "## Model calls",
            "",
            f"| {' | '.join(fields.MODEL_CALL_COLUMNS)} |",
            f"|---|{'---:|' * (len(fields.MODEL_CALL_COLUMNS) - 1)}",
        ]
        parts += [f"| {_code(name.replace('|', '/'))} | {' | '.join(figures)} |" for name, *figures in calls]
    if record.refusals:
        parts += ["", "## Refused", "", *(f"- {_code(fields.refusal_text(event))}" for event in record.refusals)]
    if record.best is not None:
        parts += ["", f"## Best candidate ({record.best.index})"]
        for component, text in component_texts(record.best.texts).items():
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
        for candidate in record.candidates:
            parents = ", ".join(map(str, candidate.parents)) or "-"
            parts.append(f"| {candidate.index} | {parents} | {candidate.score:.4g} | {candidate.metric_calls} |")
    for candidate in accepted:
        parts += ["", f"### Candidate {candidate.index}, score {candidate.score:.4g}"]
        if (change := change_of(record, candidate)) is not None:
            parts += _change(record, change, DIFF_SHOWN)
        for component, parent, lines in fields.text_changes(record, candidate.index):
            parts += ["", f"{_code(line(component, 200))} against candidate {parent}:", "", *_block(lines, "diff")]
    if refused := changes_not_kept(record):
        parts += ["", "## What was tried and refused"]
        if (more := omitted_changes(record)) is not None:
            parts += ["", more]
        for mutation in refused[-REFUSED_SHOWN:]:
            parts += [
                "",
                f"### Change {mutation.number}, of {change_origin(mutation)}",
                "",
                _code(line(change_outcome(mutation))),
            ]
            parts += _change(record, mutation, REFUSED_DIFF_SHOWN)
    if record.failed_examples is not None:
        parts += ["", "## Failed examples"]
        for group in record.failed_examples.groups:
            parts += [
                "",
                f"### {_code(line(fields.failure_name(group), 200))}",
                "",
                _code(fields.failure_places(group)),
                "",
            ]
            parts += _block(plain(fields.first_failure(group)).splitlines(), "text")
    if record.failures:
        parts += ["", "## Failed iterations"]
        for failure in record.failures[:20]:
            parts += ["", f"Iteration {failure.iteration}, {_code(line(failure.step, 100))}:", ""]
            parts += _block(plain(f"{failure.message}\n{failure.details or ''}").splitlines(), "text")
    return "\n".join(parts) + "\n"


def _change(record: RunRecord, mutation: Mutated | MutationRejected, most: int) -> list[str]:
    """Return why a code change was made, the agent's summary, and at most `most` lines of its diff."""
    parts = ["", "Why:", "", *_block(plain(mutation.request).splitlines(), "text")]
    if isinstance(mutation, Mutated):
        size = f"+{mutation.lines_added} -{mutation.lines_removed} in {', '.join(mutation.files)}"
        parts += ["", f"Code {_code(line(mutation.branch, 300))} at {_code(mutation.commit)}: {_code(line(size))}"]
        if mutation.summary:
            parts += ["", *_block(plain(mutation.summary).splitlines(), "text")]
    elif mutation.log_tail:
        parts += ["", *_block(plain(mutation.log_tail).splitlines(), "text")]
    if mutation.diff:
        lines = [plain(text) for text in mutation.diff.removesuffix("\n").split("\n")]
        parts += ["", *_block(lines[:most], "diff")]
        if len(lines) > most:
            parts += ["", f"... and {len(lines) - most} lines more: `{full_diff_command(record, mutation)}`"]
    return parts


def _code(text: str) -> str:
    """Inline code that nothing inside can end."""
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _long(label: str, text: str) -> list[str]:
    """Return a fact of several lines as a code block within its item of the list."""
    return [f"- {label}:", "", *(f"  {text}" for text in _block(text.splitlines(), "text")), ""]


def _block(lines: list[str], language: str) -> list[str]:
    fence = "`" * max(3, _longest_run("\n".join(lines)) + 1)
    return [f"{fence}{language}", *lines, fence]


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
