"""The report as one HTML page without scripts or anything loaded from elsewhere; all text in it is escaped."""

from html import escape

from evolverpc_common.display_text import line, plain
from gepa_client.evolution.names import component_texts
from gepa_client.evolution.patches import FileDiff, Line, by_file
from gepa_client.journal.run_events import CandidateFound, Mutated, MutationRejected
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

WIDTH, HEIGHT, MARGIN = 720, 260, 44
ROW = 46
COLUMN = 74

STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #6b7280; --line: #d8dce0; --page: #ffffff; --good: #14804a;
  --gone: #b42318; --good-back: #e7f6ec; --gone-back: #fdecea; --accent: #2f5fd0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --soft: #9aa3ad; --line: #353b42; --page: #14171a;
  --good: #5fd08f; --gone: #ff8f85; --good-back: #12301f; --gone-back: #3a1715; --accent: #86a8ff; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem; } dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; white-space: pre-line; }
pre { border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem; overflow-x: auto; font-size: .82rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; } svg { display: block; } svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.axis { stroke: var(--line); } .best { stroke: var(--accent); stroke-width: 2; fill: none; }
.dot { fill: var(--soft); } .dot.front { fill: var(--accent); } .edge { stroke: var(--soft); fill: none; }
.node { fill: var(--page); stroke: var(--soft); } .node.front { stroke: var(--accent); stroke-width: 2; }
.node.winner { fill: var(--accent); stroke: var(--accent); } svg text.on { fill: var(--page); }
.add { color: var(--good); background: var(--good-back); } .del { color: var(--gone); background: var(--gone-back); }
.at { color: var(--soft); } .note { color: var(--soft); } .gone { color: var(--gone); }
.edge.code { stroke: var(--accent); stroke-width: 3; }
blockquote { margin: .4rem 0; padding-left: .8rem; border-left: 3px solid var(--line); white-space: pre-wrap;
  overflow-wrap: anywhere; }
table { border-collapse: collapse; } th, td { padding: .15rem .8rem; text-align: right; border-bottom: 1px solid
  var(--line); } th { color: var(--soft); font-weight: normal; } th:first-child, td:first-child { text-align: left; }
summary { cursor: pointer; }
"""

LINES_OPEN = 60
"""Lines of a file's diff that are shown without a click."""


def html(record: RunRecord) -> str:
    """Return the whole page."""
    title = _text(record.started.run_id if record.started else "run")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{title}</title><style>{STYLE}</style></head><body>",
            f"<h1>Run {title}</h1>",
            _facts(record),
            _section("Warnings", [f"<p>{_text(message)}</p>" for message in record.warnings]),
            _section("Model calls", _model_calls(record)),
            _section("Refused", [f"<p>{_text(fields.refusal_text(event))}</p>" for event in record.refusals]),
            _section("Score over metric calls", [chart(record)] if record.candidates else []),
            _section("Where candidates came from", [tree(record)] if record.candidates else []),
            _section(f"Best candidate ({record.best.index})", _texts(record.best)) if record.best else "",
            _section("Accepted candidates", [_changes(record, found) for found in record.candidates[1:]]),
            _section("What was tried and refused", refused_changes(record)),
            _section("Failed examples", _failed_examples(record)),
            _section("Failed iterations", _failures(record)),
            "</body></html>",
            "",
        ]
    )


def _text(text: str, limit: int | None = None) -> str:
    return escape(plain(text, limit=limit))


def _section(title: str, parts: list[str]) -> str:
    return "\n".join([f"<h2>{escape(title)}</h2>", *parts]) if parts else ""


def _facts(record: RunRecord) -> str:
    rows = [f"<dt>{escape(label)}</dt><dd>{_text(text)}</dd>" for label, text in fields.summary_facts(record)]
    if record.finalized is not None:
        answer = record.finalized.error or record.finalized.message or "no message"
        rows.append(f"<dt>finalize</dt><dd>{_text(line(answer))}</dd>")
    return "<dl>" + "\n".join(rows) + "</dl>"


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
            f'<div class="scroll"><svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
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
            '<p class="note">The line is the best validation score so far; a dot is a candidate, coloured when it '
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
        f'<div class="scroll"><svg width="{width}" height="{height}" role="img" aria-label="the tree of candidates">'
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


def _texts(candidate: CandidateFound) -> list[str]:
    return [
        f"<h3>{_text(line(component, 200))}</h3><pre>{_text(text) or '(empty)'}</pre>"
        for component, text in component_texts(candidate.texts).items()
    ]


def _changes(record: RunRecord, candidate: CandidateFound) -> str:
    parts = [f"<h3>Candidate {candidate.index}, score {candidate.score:.4g}</h3>"]
    if (change := change_of(record, candidate)) is not None:
        parts.append(code_change(record, change))
    for component, parent, lines in fields.text_changes(record, candidate.index):
        shown = "\n".join(_diff_line(text) for text in lines)
        parts.append(f'<p class="note">{_text(line(component, 200))} against candidate {parent}</p><pre>{shown}</pre>')
    return "\n".join(parts)


def _diff_line(text: str) -> str:
    kind = {"+": "add", "-": "del", "@": "at"}.get(text[:1])
    return f'<span class="{kind}">{escape(text)}</span>' if kind else escape(text)


def _model_calls(record: RunRecord) -> list[str]:
    called = fields.model_call_rows(record)
    if not called:
        return []
    head = "".join(f"<th>{escape(column)}</th>" for column in fields.MODEL_CALL_COLUMNS)
    body = ["<tr>" + "".join(f"<td>{_text(text)}</td>" for text in row) + "</tr>" for row in called]
    return [f'<div class="scroll"><table><tr>{head}</tr>', *body, "</table></div>"]


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
