"""The report as Markdown, for a terminal or a pull request."""

import json
import re
from collections.abc import Sequence

from evolverpc_common.display_text import counted, line, plain
from gepa_client.analysis.explanation import Change, Explanation
from gepa_client.analysis.proposals import COMPARED, ComparedRow, Excerpt, TextChange
from gepa_client.evolution.names import component_texts
from gepa_client.journal.run_events import Mutated, MutationRejected
from gepa_client.report import summary_fields as fields
from gepa_client.report.no_improvement import no_improvement
from gepa_client.report.proposed_texts import COPY_COLUMNS, UNUSABLE_COLUMNS, copied_table, unusable_rows
from gepa_client.report.run_record import (
    DIFF_SHOWN,
    REFUSED_DIFF_SHOWN,
    REFUSED_SHOWN,
    RunRecord,
    change_of,
    change_origin,
    change_outcome,
    changes_not_kept,
    full_diff_command,
    full_texts_command,
    omitted_changes,
)
from gepa_client.report.steering_fields import STEERED_COLUMNS, steered_rows

WORD_FORMS = {"same": "{}", "add": "{{+{}+}}", "del": "[-{}-]", "cut": "[... {} ...]"}
WORD_MARKS = "Words that are new stand in `{+ +}`, removed ones in `[- -]`."

CELL = 300
"""Characters of an input, an output or a feedback that are shown."""

TEXT = 20_000
"""Characters of a component of the best candidate that are shown."""

CHANGED = 2_000
"""The same of a change of a component."""

_MARKUP = re.compile(r"[`*<\[\\|]")


def markdown(record: RunRecord, explained: Explanation | None) -> str:
    """Return the report as Markdown; texts of servers and models stand in code blocks they cannot end.

    `explained`: None if the run's store could not be read, or holds no candidate.
    """
    parts = [f"# Run {line(record.started.run_id, 200) if record.started else ''}".rstrip()]
    for sentence in fields.story(record, explained):
        parts += ["", _MARKUP.sub(r"\\\g<0>", plain(sentence))]
    if record.warnings:
        parts += ["", "## Warnings", "", *(f"- {_code(line(message))}" for message in record.warnings)]
    if facts := fields.certificate_facts(record):
        parts += ["", "## Is the gain real?", "", *(f"- {label}: {_code(line(text))}" for label, text in facts)]
    if record.best is not None:
        parts += ["", f"## Best candidate ({record.best.index})"]
        for component, text in component_texts(record.best.texts).items():
            parts += [
                "",
                f"Component {_code(line(component, 200))}:",
                "",
                *_bounded(text, TEXT, record, record.best.index),
            ]
    parts += _explained(record, explained)
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
    if record.candidates[1:]:
        parts += ["", "## All candidates", "", "| candidate | parents | score | metric calls |", "|---|---|---|---|"]
        for candidate in record.candidates:
            parents = ", ".join(map(str, candidate.parents)) or "-"
            parts.append(f"| {candidate.index} | {parents} | {candidate.score:.4g} | {candidate.metric_calls} |")
    if record.failed_examples is not None:
        parts += ["", "## Failed examples"]
        for group in record.failed_examples.groups:
            parts += ["", f"### {_code(line(fields.failure_name(group), 200))}", ""]
            parts += [_code(fields.failure_places(group)), ""]
            if (messages := fields.failure_messages(group)) is not None:
                parts += [_code(messages), ""]
            parts += _block(plain(fields.first_failure(group)).splitlines(), "text")
    if record.failures:
        parts += ["", "## Failed iterations"]
        for failure in record.failures[:20]:
            parts += ["", f"Iteration {failure.iteration}, {_code(line(failure.step, 100))}:", ""]
            parts += _block(plain(f"{failure.message}\n{failure.details or ''}").splitlines(), "text")
    parts += _run(record)
    return "\n".join(parts) + "\n"


def _run(record: RunRecord) -> list[str]:
    """Return the facts of the run, its calls of models, and what was refused."""
    parts = ["", "## The run", ""]
    for label, text in fields.summary_facts(record):
        parts += [f"- {label}: {_code(text)}"] if "\n" not in text else _long(label, text)
    if record.finalized is not None:
        answer = record.finalized.error or record.finalized.message or "no message"
        parts.append(f"- finalize{' failed' if record.finalized.error else ''}: {_code(line(answer))}")
    if record.started is not None:
        changed = fields.changed_settings(record.started.config)
        parts += [
            f"- setting {_code(line(name, 100))}: {_code(line(json.dumps(value, ensure_ascii=False)))}"
            for name, value in changed.items()
        ]
    parts += _figures("Steered by hand", STEERED_COLUMNS, steered_rows(record))
    parts += _figures("Records cut for reflection", fields.CUT_COLUMNS, fields.cut_rows(record))
    parts += _figures("Answers that were not used", UNUSABLE_COLUMNS, unusable_rows(record))
    parts += _figures("Copied from training rows", COPY_COLUMNS, copied_table(record))
    parts += _figures("Model calls", fields.MODEL_CALL_COLUMNS, fields.model_call_rows(record))
    parts += _figures("Hosts that sandboxes connected to", fields.HOST_COLUMNS, fields.host_rows(record))
    if record.refusals:
        parts += ["", "## Refused", "", *(f"- {_code(fields.refusal_text(event))}" for event in record.refusals)]
    return parts


def _figures(heading: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a section with a table: a name and numbers in each row; nothing without rows."""
    if not rows:
        return []
    head = ["", f"## {heading}", "", f"| {' | '.join(columns)} |", f"|---|{'---:|' * (len(columns) - 1)}"]
    return [*head, *(f"| {_code(name.replace('|', '/'))} | {' | '.join(figures)} |" for name, *figures in rows)]


# --- changes and their reasons ---------------------------------------------------------------------------------------


def _explained(record: RunRecord, explained: Explanation | None) -> list[str]:
    """Return the rows that the best candidate moved, each change on the way to it, and the other proposals."""
    if explained is None:
        return []
    parts: list[str] = []
    if reasons := no_improvement(record):
        parts += ["", "## Why it did not improve", "", *(f"- {label}: {_code(text)}" for label, text in reasons)]
    if explained.overall is not None:
        parts += ["", "## Rows it fixed and broke", "", *_moved_rows(explained.overall)]
    if explained.steps:
        parts += ["", "## Changes, from the seed to the best", "", f"Oldest first. {WORD_MARKS}"]
        if explained.steps_omitted:
            parts += ["", f"{counted(explained.steps_omitted, 'earlier change')} left out."]
    for at, change in enumerate(explained.steps, explained.steps_omitted + 1):
        parts += [
            "",
            f"### {at}. {fields.step_title(change)}",
            "",
            fields.step_origin(change),
            *_words(record, change.texts, change.candidate),
        ]
        found = record.candidates[change.candidate] if change.candidate < len(record.candidates) else None
        if found is not None and (mutation := change_of(record, found)) is not None:
            parts += _change(record, mutation, DIFF_SHOWN)
        if change.reason is not None and change.reason.rows:
            parts += ["", fields.minibatch_summary(change.reason), "", *map(_row, change.reason.rows)]
        if len(explained.steps) > 1:
            parts += ["", *_moved_rows(change)]
    others = [proposal for proposal in explained.others if proposal.mutation is None]
    if others:
        parts += ["", "## Other proposals"]
        if explained.others_omitted:
            parts += ["", f"{counted(explained.others_omitted, 'earlier one')} left out."]
    unchanged: dict[str, list[str]] = {}
    for proposal in others:
        if not proposal.texts:
            unchanged.setdefault(line(proposal.why), []).append(str(proposal.number))
    for why, numbers in unchanged.items():
        parts += ["", f"{_code(why)}: {counted(len(numbers), 'proposal')} without a change, at {', '.join(numbers)}."]
    for proposal in (each for each in reversed(others) if each.texts):
        parts += [
            "",
            f"### {fields.proposal_title(proposal)}",
            "",
            _code(line(proposal.why)),
            *_words(record, proposal.texts, None),
        ]
    return parts


def _words(record: RunRecord, texts: Sequence[TextChange], candidate: int | None) -> list[str]:
    """Return each component's changed words, marked as git marks them. `candidate`: None if it was not kept."""
    parts = []
    for change in texts:
        text = "".join(WORD_FORMS[piece.kind].format(piece.text) for piece in change.words)
        parts += ["", f"{_code(line(change.component, 200))}:", "", *_bounded(text, CHANGED, record, candidate)]
    return parts


def _moved_rows(change: Change) -> list[str]:
    parts = [f"On {fields.selecting_rows(change)}, {fields.moved_rows(change.scores)}. {fields.ROW_NAMES}"]
    for name, moved in fields.row_groups(change):
        if moved.count:
            shown = f", {len(moved.rows)} of them here" if moved.count > len(moved.rows) else ""
            parts += ["", f"{name}: {counted(moved.count, 'row')}{shown}", "", *map(_row, moved.rows)]
    return parts


def _row(row: ComparedRow) -> str:
    """Return an item of a list: the row's scores, input, outputs and feedback, and what the program wrote after."""
    parts = [f"- {_code(fields.row_title(row))}"]
    if row.input is not None:
        parts.append(f"  - input: {_excerpt(row.input)}")
    for field, name in COMPARED.items():
        old, new = (getattr(one, field) if one is not None else None for one in (row.before, row.after))
        if old is not None or new is not None:
            same = _excerpt(new) + " (the same before)" if old == new else f"{_excerpt(old)} -> {_excerpt(new)}"
            parts.append(f"  - {name}: {same}")
    if row.after is not None and row.after.log is not None:
        log = plain(fields.excerpt_text(row.after.log)).rstrip().splitlines()
        parts += ["  - log:", "", *(f"    {text}" for text in _block(log, "text")), ""]
    return "\n".join(parts)


def _excerpt(value: Excerpt | None) -> str:
    return _code(line(value.text, CELL)) if value is not None else "none"


# --- code and Markdown -----------------------------------------------------------------------------------------------


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


def _bounded(text: str, most: int, record: RunRecord, candidate: int | None) -> list[str]:
    """Return the first `most` characters as a block, and the command that shows the whole text."""
    whole = plain(text)
    parts = _block(whole[:most].splitlines(), "text")
    if len(whole) > most:
        parts += ["", f"... and {len(whole) - most:,} characters more: `{full_texts_command(record, candidate)}`"]
    return parts


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
