"""The report as one HTML page without scripts or anything loaded from elsewhere; all text in it is escaped."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from evolverpc_common.display_text import counted, line, plain
from gepa_client.analysis.explanation import Change, Explanation, MovedRows
from gepa_client.analysis.proposals import COMPARED, ComparedRow, Excerpt, Proposal, TextChange, marked_texts
from gepa_client.evolution.names import code_label, component_texts
from gepa_client.evolution.patches import FileDiff, Line, Words, by_file, changed_words
from gepa_client.journal.run_events import Mutated, MutationRejected
from gepa_client.report import summary_fields as fields
from gepa_client.report.proposed_texts import COPY_COLUMNS, UNUSABLE_COLUMNS, copied_table, unusable_rows
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
from gepa_client.run.output_folder import BEST_CANDIDATE

WIDTH, HEIGHT, MARGIN = 720, 260, 44
ROW = 46
COLUMN = 74

STYLE = Path(__file__).with_name("page.css")

LINES_OPEN = 60
"""Lines of a file's diff that are shown without a click."""

TEXT_LINES_OPEN = 30
"""Lines of a component's text that are shown without a click."""

FEW_LINES = 5
"""Lines that are shown rather than folded away: to open them is more work than to read them."""

ROWS_OPEN = 3
"""Rows of a group that are shown whole without a click."""

LONGEST_TEXT = 200_000
"""Characters of a component that are shown."""

EMPTY = '<span class="cut">(empty)</span>'
MARKS = {"add": "ins", "del": "del"}


def html(record: RunRecord, explained: Explanation | None) -> str:
    """Return the whole page; `explained`: None if the run's store could not be read, or holds no candidate."""
    title = _text(record.started.run_id if record.started else "run")
    style = STYLE.read_text(encoding="utf-8")
    sections = {
        "gain": ("Is the gain real?", _certificate(record)),
        "best": ("Best text", _best(record)),
        "rows": ("Rows it fixed and broke", _overall(explained)),
        "steps": ("Changes, from the seed to the best", _steps(record, explained)),
        "others": ("Other proposals", _others(explained)),
        "refused-changes": ("What was tried and refused", refused_changes(record)),
        "candidates": ("All candidates", [chart(record), tree(record)] if record.candidates[1:] else []),
        "failed": ("Failed examples", _failed_examples(record)),
        "failures": ("Failed iterations", _failures(record)),
        "cuts": ("Records cut for reflection", _figures(fields.CUT_COLUMNS, fields.cut_rows(record))),
        "unused": ("Answers that were not used", _figures(UNUSABLE_COLUMNS, unusable_rows(record))),
        "copied": ("Copied from training rows", _figures(COPY_COLUMNS, copied_table(record))),
        "models": ("Model calls", _figures(fields.MODEL_CALL_COLUMNS, fields.model_call_rows(record))),
        "hosts": ("Hosts that sandboxes connected to", _figures(fields.HOST_COLUMNS, fields.host_rows(record))),
        "refused": ("Refused", [f"<p>{_text(fields.refusal_text(event))}</p>" for event in record.refusals]),
        "run": ("The run and its settings", [_facts(record), _settings(record)]),
    }
    filled = {name: (heading, parts) for name, (heading, parts) in sections.items() if parts}
    links = [f'<li><a href="#{name}">{escape(heading)}</a></li>' for name, (heading, _) in filled.items()]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{title}</title><style>{style}</style></head><body><main>",
            f"<h1>Run {title}</h1>",
            *(f'<p class="story">{_text(sentence)}</p>' for sentence in fields.story(record, explained)),
            _warnings(record),
            f'<nav aria-label="Sections"><ul>{"".join(links)}</ul></nav>',
            *(
                f'<section><h2 id="{name}">{escape(heading)}</h2>\n' + "\n".join(parts) + "</section>"
                for name, (heading, parts) in filled.items()
            ),
            "</main></body></html>",
            "",
        ]
    )


def _text(text: str, limit: int | None = None) -> str:
    return escape(plain(text, limit=limit))


def _note(text: str) -> str:
    return f'<p class="note">{_text(text)}</p>'


def _folded(summary: str, parts: Sequence[str], *, row: bool = False, opened: bool = False) -> str:
    """Return a block that opens at a click; `summary` is markup."""
    attributes = (' class="row"' if row else "") + (" open" if opened else "")
    return f"<details{attributes}><summary>{summary}</summary>" + "\n".join(parts) + "</details>"


def _warnings(record: RunRecord) -> str:
    if not record.warnings:
        return ""
    items = "".join(f"<p>{_text(message)}</p>" for message in record.warnings)
    return f'<div class="warnings" role="note"><strong>Warnings</strong>{items}</div>'


def _certificate(record: RunRecord) -> list[str]:
    facts = fields.certificate_facts(record)
    rows = [f"<dt>{escape(label)}</dt><dd>{_text(line(text))}</dd>" for label, text in facts]
    return ["<dl>", *rows, "</dl>"] if rows else []


def _facts(record: RunRecord) -> str:
    rows = [f"<dt>{escape(label)}</dt><dd>{_text(text)}</dd>" for label, text in fields.summary_facts(record)]
    if record.finalized is not None:
        answer = record.finalized.error or record.finalized.message or "no message"
        rows.append(f"<dt>finalize</dt><dd>{_text(line(answer))}</dd>")
    return "<dl>" + "\n".join(rows) + "</dl>"


def _settings(record: RunRecord) -> str:
    changed = fields.changed_settings(record.started.config) if record.started is not None else {}
    rows = [
        f"<dt>{_text(line(name, 100))}</dt><dd>{_text(json.dumps(value, ensure_ascii=False), 2000)}</dd>"
        for name, value in changed.items()
    ]
    return _folded("Settings that differ from their defaults", ["<dl>", *rows, "</dl>"]) if rows else ""


# --- the best text and its changes -----------------------------------------------------------------------------------


def _best(record: RunRecord) -> list[str]:
    """Return the texts of the best candidate, the words marked that the seed lacks."""
    seed, best = record.seed, record.best
    if seed is None or best is None:
        return []
    if best.index == 0:
        about = "It is the seed, unchanged."
    else:
        about = f"Candidate {best.index}. Underlined: words that the seed lacks."
    parts = [_note(about)]
    if (code := code_label(best.texts)) is not None:
        parts.append(_note(f"Its code: {line(code, 300)}"))
    for text in marked_texts(seed.texts, best.texts):
        unchanged = "" if best.index == 0 or any(piece.kind == "add" for piece in text.words) else ", as in the seed"
        parts += [f"<h3>{_text(line(text.component, 200))}{unchanged}</h3>", *_whole_text(text.words)]
    if best.index:
        now = component_texts(best.texts)
        was = []
        for component, old in component_texts(seed.texts).items():
            words = [piece for piece in changed_words(old, now.get(component, "")) if piece.kind != "add"]
            was.append(f"<h4>{_text(line(component, 200))}</h4>{_marked(_between(words, 0, LONGEST_TEXT))}")
        parts.append(_folded("The seed\u2019s text; struck through: words that the best text lacks", was))
    return parts


def _whole_text(words: Sequence[Words]) -> list[str]:
    """Return a component's text; what is beyond its first lines opens at a click."""
    text = "".join(piece.text for piece in words)
    lines = text.splitlines(keepends=True)
    at = LONGEST_TEXT
    if len(lines) > TEXT_LINES_OPEN + FEW_LINES:
        at = min(at, sum(map(len, lines[:TEXT_LINES_OPEN])))
    parts = [_marked(_between(words, 0, at))]
    if rest := _between(words, at, LONGEST_TEXT):
        parts.append(_folded(f"The other {counted(len(lines) - TEXT_LINES_OPEN, 'line')}", [_marked(rest)]))
    if len(text) > LONGEST_TEXT:
        parts.append(_note(f"{len(text) - LONGEST_TEXT:,} characters more are in {BEST_CANDIDATE}"))
    return parts


def _between(words: Sequence[Words], start: int, end: int) -> list[Words]:
    """Return the words from one character of their text to another."""
    found, at = [], 0
    for piece in words:
        found.append(Words(piece.kind, piece.text[max(0, start - at) : max(0, end - at)]))
        at += len(piece.text)
    return [piece for piece in found if piece.text]


def _marked(words: Sequence[Words]) -> str:
    return f"<pre>{''.join(map(_piece, words)) or EMPTY}</pre>"


def _piece(piece: Words) -> str:
    if piece.kind == "cut":
        return f'<span class="cut">[\u2026 {_text(piece.text)} \u2026]</span>'
    tag = MARKS.get(piece.kind)
    return f"<{tag}>{_text(piece.text)}</{tag}>" if tag is not None else _text(piece.text)


def text_diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return every text of two candidates as one, by component: words struck through if removed, underlined if new."""
    old, new = component_texts(dict(before)), component_texts(dict(after))
    parts = []
    for name in dict.fromkeys([*old, *new]):
        words = changed_words(old.get(name, ""), new.get(name, ""))
        unchanged = "" if any(piece.kind in MARKS for piece in words) else ", unchanged"
        parts.append(f"<h4>{_text(line(name, 200))}{unchanged}</h4>{_marked(_between(words, 0, LONGEST_TEXT))}")
    return "\n".join(parts)


def _text_changes(texts: Sequence[TextChange]) -> list[str]:
    return [f'<p class="note">{_text(line(each.component, 200))}</p>{_marked(each.words)}' for each in texts]


def _overall(explained: Explanation | None) -> list[str]:
    if explained is None or explained.overall is None or len(explained.steps) < 2:
        return []  # a single step shows the same
    overall = explained.overall
    return [
        f"<p>Seed against best on validation: {fields.moved_rows(overall.scores)}.</p>",
        *_moved_rows(overall),
    ]


def _steps(record: RunRecord, explained: Explanation | None) -> list[str]:
    if explained is None:
        return [_note("The run\u2019s store could not be read, or holds no candidate.")] if record.candidates else []
    if not explained.steps:
        reasons = [f"<dt>{_text(label)}</dt><dd>{_text(text)}</dd>" for label, text in fields.no_improvement(record)]
        none = _note("None: no candidate is better than the seed.")
        return [none, "<dl>", *reasons, "</dl>"] if reasons else [none]
    parts = [
        '<p class="note">Oldest first. <ins>Underlined</ins>: new words; <del>struck through</del>: removed words.</p>'
    ]
    if explained.steps_omitted:
        parts.append(_note(f"{counted(explained.steps_omitted, 'earlier change')} left out."))
    return [
        *parts,
        *(_step(record, at, change) for at, change in enumerate(explained.steps, explained.steps_omitted + 1)),
    ]


def _step(record: RunRecord, at: int, change: Change) -> str:
    parts = [
        f"<h3>{at}. {_text(fields.step_title(change))}</h3>",
        _note(fields.step_origin(change)),
        *_text_changes(change.texts),
    ]
    found = record.candidates[change.candidate] if change.candidate < len(record.candidates) else None
    if found is not None and (mutation := change_of(record, found)) is not None:
        parts.append(code_change(record, mutation))
    parts += _reason(change.reason)
    parts += [f"<h4>What it changed on validation</h4><p>{fields.moved_rows(change.scores)}.</p>", *_moved_rows(change)]
    return "\n".join(parts)


def _reason(reason: Proposal | None) -> list[str]:
    """Return the minibatch that a proposal was made from, what reflection read, and its answer."""
    if reason is None:
        return []
    return ["<h4>Why it was proposed</h4>", *_minibatch(reason), *_reflection(reason)]


def _minibatch(proposal: Proposal) -> list[str]:
    if not proposal.rows:
        return []
    intro = f"<p>{_text(fields.minibatch_summary(proposal))}</p>"
    return [intro, *(_row(row, opened=False) for row in proposal.rows)]


def _reflection(proposal: Proposal) -> list[str]:
    parts = []
    for component, records in proposal.records.items():
        shown = [
            "<dl>"
            + "".join(f"<dt>{_text(line(name, 100))}</dt><dd>{_excerpt(value)}</dd>" for name, value in each.items())
            + "</dl>"
            for each in records
        ]
        parts.append(_folded(f"What reflection read about {_text(line(component, 200))}", shown))
    for component, answer in proposal.answers.items():
        parts.append(_folded(f"What the model answered about {_text(line(component, 200))}", [_excerpt(answer)]))
    return parts


def _moved_rows(change: Change) -> list[str]:
    return [
        _note(fields.ROW_NAMES),
        *(part for name, rows in fields.row_groups(change) for part in _row_group(name, rows)),
    ]


def _row_group(name: str, moved: MovedRows) -> list[str]:
    if not moved.count:
        return []
    shown = f", {len(moved.rows)} of them here" if moved.count > len(moved.rows) else ""
    rows = [_row(row, opened=at < ROWS_OPEN) for at, row in enumerate(moved.rows)]
    return [f"<h4>{name}: {counted(moved.count, 'row')}{shown}</h4>", *rows]


def _row(row: ComparedRow, *, opened: bool) -> str:
    first = f' <span class="first">{_text(line(row.input.text, 100))}</span>' if row.input is not None else ""
    parts = [f"<dt>input</dt><dd>{_excerpt(row.input)}</dd>"] if row.input is not None else []
    for field, name in {**COMPARED, "log": "log"}.items():
        old, new = (getattr(one, field) if one is not None else None for one in (row.before, row.after))
        if old is None and new is None:
            continue
        if old == new:
            parts.append(f'<dt>{name}</dt><dd><span class="first">the same before and after</span>{_excerpt(old)}</dd>')
        else:
            pair = "".join(
                f'<div><span class="first">{when}</span>{_excerpt(value)}</div>'
                for when, value in (("before", old), ("after", new))
            )
            parts.append(f'<dt>{name}</dt><dd class="pair">{pair}</dd>')
    summary = f"<strong>{_text(fields.row_title(row))}</strong>{first}"
    return _folded(summary, ["<dl>", *parts, "</dl>"], row=True, opened=opened)


def _excerpt(value: Excerpt | None) -> str:
    if value is None:
        return '<pre><span class="cut">(none)</span></pre>'
    cut = f'<span class="cut">[\u2026 {value.omitted:,} more characters \u2026]</span>' if value.omitted else ""
    return f"<pre>{_text(value.text)}{cut}</pre>"


def _others(explained: Explanation | None) -> list[str]:
    """Return the proposals on no step, the last one first; changes of code have a section of their own."""
    if explained is None:
        return []
    shown = [proposal for proposal in explained.others if proposal.mutation is None]
    parts = [_note("Last first. The number is the place in the run's journal.")] if shown else []
    if explained.others_omitted:
        parts.append(_note(f"{counted(explained.others_omitted, 'earlier one')} left out."))
    for proposal in reversed(shown):
        why = f' <span class="first">{_text(line(proposal.why, 300))}</span>'
        summary = f"<strong>{_text(fields.proposal_title(proposal))}</strong>{why}"
        body = [*_text_changes(proposal.texts), *_minibatch(proposal), *_reflection(proposal)]
        parts.append(_folded(summary, body, row=True))
    return parts


# --- all candidates --------------------------------------------------------------------------------------------------


def chart(record: RunRecord) -> str:
    """Each candidate's validation score when it was found, and the best so far as a line."""
    found = record.candidates
    scores = [candidate.score for candidate in found]
    low, high = min(0.0, *scores), max(scores)
    if (low == 0.0 and 0.4 < high <= 1.0) or high <= low:
        high = low + 1.0  # the usual scale of scores, or a line that has no height of its own
    last = max(record.metric_calls, found[-1].metric_calls, 1)

    def x(calls: int) -> float:
        return round(MARGIN + (WIDTH - 2 * MARGIN) * calls / last, 1)

    def y(score: float) -> float:
        return round(HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (score - low) / (high - low), 1)

    best = scores[0]
    path = [f"M{x(found[0].metric_calls)} {y(best)}"]
    for candidate in found[1:]:
        path.append(f"H{x(candidate.metric_calls)}")
        if candidate.score > best:
            best = candidate.score
            path.append(f"V{y(best)}")
    path.append(f"H{x(last)}")
    ticks = [low + (high - low) * step / 4 for step in range(5)]
    front = set(record.front)
    return "\n".join(
        [
            f'<div class="scroll" tabindex="0"><svg width="{WIDTH}" height="{HEIGHT}" role="img" '
            f'aria-label="best validation score over metric calls, from {scores[0]:.4g} to {best:.4g}">',
            *(
                f'<line class="axis" x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y(tick)}" y2="{y(tick)}"/>'
                f'<text x="{MARGIN - 6}" y="{y(tick) + 4}" text-anchor="end">{tick:.3g}</text>'
                for tick in ticks
            ),
            *(
                f'<text x="{x(calls)}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{calls:,}</text>'
                for calls in dict.fromkeys(round(last * step / 4) for step in range(5))
            ),
            f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">metric calls</text>',
            f'<path class="best" d="{" ".join(path)}"/>',
            *(
                f'<circle class="dot{" front" if candidate.index in front else ""}" cx="{x(candidate.metric_calls)}" '
                f'cy="{y(candidate.score)}" r="4">'
                f"<title>candidate {candidate.index}: {candidate.score:.4g}</title></circle>"
                for candidate in found
            ),
            "</svg></div>",
            '<p class="note">The line is the best validation score so far; a dot is a candidate, filled if it '
            "ended on the Pareto front.</p>",
        ]
    )


def tree(record: RunRecord) -> str:
    """Every candidate below its parents."""
    found = record.candidates
    depth: list[int] = []
    column: list[int] = []
    widths: dict[int, int] = {}
    for candidate in found:
        level = 1 + max((depth[parent] for parent in candidate.parents), default=-1)
        depth.append(level)
        column.append(widths.get(level, 0))
        widths[level] = column[-1] + 1
    widest = max(widths.values())
    width, height = widest * COLUMN + 20, (max(depth) + 1) * ROW + 10

    def centre(index: int) -> tuple[float, float]:
        free = (widest - widths[depth[index]]) * COLUMN / 2
        return 10 + free + column[index] * COLUMN + COLUMN / 2, 20 + depth[index] * ROW

    drawn = [
        f'<div class="scroll" tabindex="0"><svg width="{width}" height="{height}" role="img" '
        'aria-label="the tree of candidates">'
    ]
    for candidate in found:
        x, y = centre(candidate.index)
        for parent in candidate.parents:
            px, py = centre(parent)
            kind = " code" if change_of(record, candidate) is not None else ""
            drawn.append(f'<path class="edge{kind}" d="M{px} {py + 13} C{px} {py + 30} {x} {y - 30} {x} {y - 13}"/>')
    winner = record.best.index if record.best is not None else 0
    front = set(record.front)
    for candidate in found:
        x, y = centre(candidate.index)
        kind = " winner" if candidate.index == winner else " front" if candidate.index in front else ""
        drawn.append(
            f'<rect class="node{kind}" x="{x - 32}" y="{y - 13}" width="64" height="26" rx="6"/>'
            f'<text class="{"on" if kind == " winner" else ""}" x="{x}" y="{y + 4}" text-anchor="middle">'
            f"{candidate.index}: {candidate.score:.3g}</text>"
        )
    drawn.append("</svg></div>")
    code = " A thick line: the code was changed." if record.mutations else ""
    drawn.append(
        f'<p class="note">Index and validation score; filled: the best, outlined: on the Pareto front.{code}</p>'
    )
    return "\n".join(drawn)


def _figures(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table with a name and numbers in each row; nothing without rows."""
    if not rows:
        return []
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = ["<tr>" + "".join(f"<td>{_text(text)}</td>" for text in row) + "</tr>" for row in rows]
    return [f'<div class="scroll" tabindex="0"><table><tr>{head}</tr>', *body, "</table></div>"]


def _failed_examples(record: RunRecord) -> list[str]:
    groups = record.failed_examples.groups if record.failed_examples is not None else []
    return [
        f"<h3>{_text(line(fields.failure_name(group), 200))}</h3><p>{_text(fields.failure_places(group))}</p>"
        f"<pre>{_text(fields.first_failure(group))}</pre>"
        for group in groups
    ]


def _failures(record: RunRecord) -> list[str]:
    return [
        f'<p class="note">iteration {failure.iteration}, {_text(line(failure.step, 100))}</p>'
        f"<pre>{_text(failure.message)}\n{_text(failure.details or '', limit=8000)}</pre>"
        for failure in record.failures[:20]
    ]


def code_change(record: RunRecord, mutation: Mutated | MutationRejected, most: int = DIFF_SHOWN) -> str:
    """Return why a change was made, its summary, and at most `most` lines of its diff."""
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
    parts += _code_diff(record, mutation, most)
    return "\n".join(parts)


def _refused_change(record: RunRecord, mutation: Mutated | MutationRejected) -> str:
    """Return a change that was not kept, with the reason."""
    head = f"<h3>Change {mutation.number}, of {escape(change_origin(mutation))}</h3>"
    return "\n".join(
        [
            head,
            f'<p class="gone">{_text(line(change_outcome(mutation)))}</p>',
            code_change(record, mutation, REFUSED_DIFF_SHOWN),
        ]
    )


def refused_changes(record: RunRecord) -> list[str]:
    """Return the changes that were not kept, the last `REFUSED_SHOWN` of them."""
    more = omitted_changes(record)
    shown = [_refused_change(record, mutation) for mutation in changes_not_kept(record)[-REFUSED_SHOWN:]]
    return [*([f'<p class="note">{_text(more)}</p>'] if more is not None else []), *shown]


def _code_diff(record: RunRecord, mutation: Mutated | MutationRejected, most: int) -> list[str]:
    left, parts = most, []
    for file in by_file(mutation.diff or ""):
        parts.append(_file_diff(file, left))
        left -= len(file.lines)
        if left <= 0:
            break
    if left < 0:
        parts.append(f'<p class="note">cut; all of it: <code>{_text(full_diff_command(record, mutation))}</code></p>')
    return parts


def _file_diff(file: FileDiff, most: int) -> str:
    opened = " open" if len(file.lines) <= LINES_OPEN else ""
    size = f'<span class="add">+{file.added}</span> <span class="del">-{file.removed}</span>'
    shown = "\n".join(_code_line(part) for part in file.lines[:most])
    name = _text(line(file.name, 300))
    return f"<details{opened}><summary><code>{name}</code> {size}</summary><pre>{shown}</pre></details>"


def _code_line(part: Line) -> str:
    text = _text(part.text)
    kind = {"head": "at", "same": None}.get(part.kind, part.kind)
    return f'<span class="{kind}">{text}</span>' if kind else text
