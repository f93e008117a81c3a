"""The part of the HTML page that tells of code: each change with why it was made and its diff, long ones folded."""

from html import escape

from evolverpc_common.display_text import line, plain
from gepa_client.evolution.patches import FileDiff, Line, by_file
from gepa_client.journal.run_events import Mutated, MutationRejected
from gepa_client.report.code_section import (
    DIFF_SHOWN,
    REFUSED_DIFF_SHOWN,
    REFUSED_SHOWN,
    all_of_it,
    left_out,
    not_kept,
    origin,
    outcome,
)
from gepa_client.report.record import RunRecord

OPEN = 60
"""Lines of a file's diff that are shown without a click."""


def change(record: RunRecord, mutation: Mutated | MutationRejected, most: int = DIFF_SHOWN) -> str:
    """Why a change was made, what was said of it, and at most so many lines of its diff."""
    parts = [f'<p class="note">why</p><blockquote>{_text(mutation.request)}</blockquote>']
    if isinstance(mutation, Mutated):
        size = f"+{mutation.lines_added} -{mutation.lines_removed}"
        parts.append(
            f'<p class="note">code <code>{_text(line(f"{mutation.branch}@{mutation.commit}", 300))}</code>, {size}</p>'
        )
        if mutation.summary:
            parts.append(f"<blockquote>{_text(mutation.summary)}</blockquote>")
    elif mutation.log_tail:
        parts.append(f'<p class="note">the end of the log</p><pre>{_text(mutation.log_tail, 8000)}</pre>')
    parts += _diff(record, mutation, most)
    return "\n".join(parts)


def _refused(record: RunRecord, mutation: Mutated | MutationRejected) -> str:
    """A change that came to nothing, with the reason."""
    head = f"<h3>Change {mutation.number}, of {escape(origin(mutation))}</h3>"
    return "\n".join(
        [head, f'<p class="gone">{_text(line(outcome(mutation)))}</p>', change(record, mutation, REFUSED_DIFF_SHOWN)]
    )


def refused(record: RunRecord) -> list[str]:
    """Every change that came to nothing, the last ones where there are many."""
    more = left_out(record)
    shown = [_refused(record, mutation) for mutation in not_kept(record)[-REFUSED_SHOWN:]]
    return [*([f'<p class="note">{_text(more)}</p>'] if more is not None else []), *shown]


def _diff(record: RunRecord, mutation: Mutated | MutationRejected, most: int) -> list[str]:
    left, parts = most, []
    for file in by_file(mutation.diff or ""):
        parts.append(_file(file, left))
        left -= len(file.lines)
        if left <= 0:
            break
    if left < 0:
        parts.append(f'<p class="note">cut; all of it: <code>{_text(all_of_it(record, mutation))}</code></p>')
    return parts


def _file(file: FileDiff, most: int) -> str:
    opened = " open" if len(file.lines) <= OPEN else ""
    size = f'<span class="add">+{file.added}</span> <span class="del">-{file.removed}</span>'
    shown = "\n".join(_line(part) for part in file.lines[:most])
    name = _text(line(file.name, 300))
    return f"<details{opened}><summary><code>{name}</code> {size}</summary><pre>{shown}</pre></details>"


def _line(part: Line) -> str:
    text = _text(part.text)
    kind = {"head": "at", "same": None}.get(part.kind, part.kind)
    return f'<span class="{kind}">{text}</span>' if kind else text


def _text(text: str, limit: int | None = None) -> str:
    return escape(plain(text, limit=limit))
