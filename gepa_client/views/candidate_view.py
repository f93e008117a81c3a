"""Candidates on a terminal: one with its texts, changes and scores; all as a tree; all changes of code; and diffs."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from evolverpc_common.display_text import counted
from gepa_client.analysis.explanation import Change, moved_rows, paired_scores
from gepa_client.analysis.mutation_outcomes import CodeHistory, MutationOutcome
from gepa_client.analysis.proposals import COMPARED, ComparedRow, ProposalHistory
from gepa_client.evolution.candidate_names import code_label, component_texts
from gepa_client.evolution.text_diffs import LineKind, lines, text_diff
from gepa_client.journal.entries import CandidateRecord
from gepa_client.journal.history import RecordedRow
from gepa_client.report import summary_fields as fields
from gepa_client.views.console import LONGEST, cut_cell, echo, plain_table, safe, safe_line
from protocol.code import code_at

MOVED_SHOWN = 3
"""Rows that a change made better, and worse, which are shown unless in full."""

VALUE = 80
"""Characters of an input, an output or a feedback that are shown, unless in full."""

LOG_SHOWN = 5
"""Lines that the program wrote which are shown, unless in full."""

STEP = 4
"""Columns of indentation per level."""

ROOM = 44
"""Columns left for a candidate's own line."""


def show_candidate(
    console: Console,
    candidates: Sequence[CandidateRecord],
    index: int,
    rows: Sequence[RecordedRow],
    record: CodeHistory,
    change: Change | None,
    history: ProposalHistory,
    *,
    full: bool,
) -> None:
    """Print texts, a diff against each parent, the code mutation that made it, its reason, and scores by row.

    `change`: None for the seed.
    """
    kept = candidates[index]
    parents = [candidates[parent] for parent in kept.parents]
    came = f"from {' and '.join(str(parent.index) for parent in parents)}" if parents else "the seed"
    echo(
        console,
        f"[bold]candidate {kept.index}[/], {came}: score [bold]{kept.score:.4f}[/], found in iteration "
        f"{kept.iteration:,} after {kept.metric_calls:,} metric calls [dim]at {kept.number:,}[/]",
    )
    for name, score in (kept.objective_scores or {}).items():
        echo(console, f"[dim]objective[/] {safe_line(name, 100)} {score:.4f}")
    if (named := code_label(kept.texts)) is not None:
        echo(console, f"[dim]code[/] {safe_line(named, 200)}")
    for component, text in component_texts(kept.texts).items():
        echo(console, f"\n[bold]{safe_line(component, 200)}[/]")
        echo(console, safe(text) if text else "[dim](empty)[/]")
    for parent in parents:
        echo(console, f"\n[bold]against candidate {parent.index}[/] [dim](score {parent.score:.4f})[/]")
        show_changes(console, parent, kept, full=full)
    _show_code(console, kept, parents, record, full=full)
    if change is not None and change.proposal is not None:
        proposal = history.recorded[change.proposal]
        compared = history.rows(proposal)
        echo(console, "\n[bold]why it was proposed[/]")
        echo(console, safe_line(fields.minibatch_summary(proposal, len(compared))))
        _show_compared(console, compared, full=full)
    if change is not None:
        show_moved_rows(console, change, full=full)
    _show_scores(console, kept, parents, rows)


def show_changes(console: Console, before: CandidateRecord, after: CandidateRecord, *, full: bool) -> None:
    """Print a diff for every text that differs, cut unless `full`; code is named only."""
    was, now = code_label(before.texts), code_label(after.texts)
    changed = was != now
    if changed:
        echo(console, f"[dim]code[/] {safe_line(was or 'none', 200)} -> {safe_line(now or 'none', 200)}")
    old, new = component_texts(before.texts), component_texts(after.texts)
    for component in dict.fromkeys([*old, *new]):
        if diff := text_diff(old.get(component, ""), new.get(component, "")):
            changed = True
            echo(console, f"[dim]{safe_line(component, 200)}[/]")
            show_diff(console, "\n".join(diff), full=full, more="--full shows them")
    if not changed:
        echo(console, "[dim]no text differs[/]")


def show_moved_rows(console: Console, change: Change, *, full: bool) -> None:
    """Print the first rows whose score a change raised, lowered, and left: inputs, outputs and feedback."""
    for group in change.groups:
        rows = group.rows if full else group.rows[:MOVED_SHOWN]
        first = f", the first {len(rows)}" if len(rows) < group.count else ""
        against = f"{group.name}, against candidate {change.against}"
        echo(console, f"\n[bold]{against}[/]: {counted(group.count, 'row')}{first}")
        _show_compared(console, rows, full=full)


def _show_compared(console: Console, rows: Sequence[ComparedRow], *, full: bool) -> None:
    longest = LONGEST if full else VALUE
    for row in rows:
        echo(console, f"[bold]{safe_line(fields.row_title(row))}[/]")
        if row.input is not None:
            echo(console, f"  [dim]input[/] {safe_line(row.input.text, longest)}")
        for field, name in COMPARED.items():
            old, new = (getattr(one, field) if one is not None else None for one in (row.before, row.after))
            if old == new and new is not None:
                echo(console, f"  [dim]{name}[/] {safe_line(new.text, longest)}")
            elif old is not None or new is not None:
                was, now = (safe_line(each.text, longest) if each is not None else "none" for each in (old, new))
                echo(console, f"  [dim]{name}[/] {was} [dim]->[/] {now}")
        if row.after is not None and row.after.log is not None:
            _show_log(console, fields.excerpt_text(row.after.log), full=full)


def _show_log(console: Console, log: str, *, full: bool) -> None:
    lines = log.rstrip().splitlines()
    echo(console, "  [dim]log[/]")
    for text in lines if full else lines[:LOG_SHOWN]:
        echo(console, f"    {safe_line(text, LONGEST if full else VALUE)}")
    if len(lines) > LOG_SHOWN and not full:
        echo(console, f"    [dim]... and {counted(len(lines) - LOG_SHOWN, 'line')} more; --full shows them[/]")


def _show_code(
    console: Console, kept: CandidateRecord, parents: Sequence[CandidateRecord], record: CodeHistory, *, full: bool
) -> None:
    """Print the mutation that changed its code; nothing if it runs a parent's code."""
    commit = code_at(kept.texts)[1]
    outcome = record.making(commit)
    if outcome is None or outcome.made is None or any(code_at(parent.texts)[1] == commit for parent in parents):
        return
    size = diff_size(outcome.added, outcome.removed, len(outcome.made.files))
    echo(console, f"\n[bold]change of code {outcome.number}[/]: {size}")
    echo(console, f"[dim]why[/] {safe(outcome.entry.request.strip())}")
    if outcome.made.summary:
        echo(console, f"[dim]summary[/] {safe(outcome.made.summary.strip())}")
    show_diff(console, outcome.made.diff, full=full, more="--full shows them")


def _show_scores(
    console: Console, kept: CandidateRecord, parents: Sequence[CandidateRecord], rows: Sequence[RecordedRow]
) -> None:
    """Print rows whose score differs from a parent's; for a seed all rows."""
    names = {str(row.row_id): row.id for row in rows}
    moved = [row for row, score in kept.scores.items() if not parents or _moved(row, score, parents)]
    for parent in parents:
        shared = [row for row in kept.scores if row in parent.scores]
        paired = paired_scores([parent.scores[row] for row in shared], [kept.scores[row] for row in shared])
        echo(console, f"\n[bold]rows[/] against candidate {parent.index}: {moved_rows(paired)}")
    if not moved:
        return
    if not parents:
        echo(console, "\n[bold]rows[/]")
    table = plain_table()
    table.add_column("row", overflow="ellipsis", no_wrap=True, max_width=40)
    table.add_column("score", justify="right", no_wrap=True)
    for parent in parents:
        table.add_column(f"in {parent.index}", justify="right", no_wrap=True)
    for row in moved:
        cells = [_beside(kept.scores[row], parent.scores.get(row)) for parent in parents]
        table.add_row(safe_line(names.get(row, row), 80), f"{kept.scores[row]:.4g}", *cells)
    console.print(table)


def _moved(row: str, score: float, parents: Sequence[CandidateRecord]) -> bool:
    return any(parent.scores.get(row) != score for parent in parents)


def _beside(score: float, before: float | None) -> str:
    if before is None:
        return "[dim]-[/]"
    colour = "green" if score > before else "red" if score < before else "dim"
    return f"[{colour}]{before:.4g}[/]"


def candidate_tree(candidates: Sequence[CandidateRecord], front: set[int], best: int, width: int) -> Tree:
    """Build the tree, at most `width` columns wide: a deeper branch continues at the left, with its parent's number."""
    label = _labels(candidates, front, best)
    root = Tree(label(candidates[0], None), guide_style="dim")
    deepest = max(2, (width - ROOM) // STEP)
    placed: dict[int, tuple[Tree, int]] = {candidates[0].index: (root, 0)}
    for kept in candidates[1:]:
        above = kept.parents[0] if kept.parents else candidates[0].index
        branch, depth = placed.get(above, (root, 0))
        if depth + 1 > deepest:
            placed[kept.index] = (root.add(label(kept, None)), 1)
        else:
            placed[kept.index] = (branch.add(label(kept, above)), depth + 1)
    return root


def _labels(
    candidates: Sequence[CandidateRecord], front: set[int], best: int
) -> Callable[[CandidateRecord, int | None], str]:
    """Return the function that labels a candidate; `above`: the parent it hangs below, which is not named then."""
    digits = len(str(candidates[-1].index))
    commits = {kept.index: code_at(kept.texts)[1] for kept in candidates}

    def label(kept: CandidateRecord, above: int | None) -> str:
        parts = [f"[bold]{kept.index:>{digits}}[/] {kept.score:.4f}"]
        if kept.index in front:
            parts.append("[cyan]front[/]")
        if kept.index == best:
            parts.append("[bold green]best[/]")
        if commits[kept.index] not in {None, *(commits.get(parent) for parent in kept.parents)} and kept.parents:
            parts.append("[magenta]code[/]")
        if len(kept.parents) > 1:
            parts.append(f"merge of {' and '.join(map(str, kept.parents))}")
        elif kept.parents and above is None:
            parts.append(f"from {kept.parents[0]}")
        parts.append(f"[dim]at {kept.number:,}[/]")
        return " ".join(parts)

    return label


REASONS = 10
"""Different reasons for rejections that are shown."""

NAMED = 5
"""Mutations that are named with each."""

REQUEST = 300
"""Characters of a change request's first line that are shown."""


def show_code(console: Console, run_id: str, record: CodeHistory) -> None:
    """Print the list, and the code of seed and best candidate where they differ from it."""
    outcomes = record.outcomes
    statuses = [outcome.status for outcome in outcomes]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    where = f"; branches evolve/{run_id}/NUMBER" if _named_alike(run_id, record) else ""
    echo(console, f"[bold]{safe_line(run_id)}[/]: {counted(len(outcomes), 'change')} of code, {counts}{where}")
    console.print()
    console.print(_mutation_table(run_id, record))
    _show_reasons(console, record)
    if record.seed is not None:
        echo(console, f"\n[dim]seed[/] {safe_line(code_label(record.seed.texts) or '-', 100)} {record.seed.score:.4f}")
    if record.best is not None and record.best_outcome is None:
        echo(console, f"the best candidate ({record.best.index}) runs the seed's code")


def outcome_as_json(record: CodeHistory, outcome: MutationOutcome) -> dict[str, Any]:
    """Return a mutation with everything but its bundle."""
    entry, made, best = outcome.entry, outcome.made, record.best_outcome
    return {
        "number": outcome.number,
        "kind": entry.kind,
        "request": entry.request,
        "location": entry.location,
        "parents": list(outcome.parents),
        "outcome": outcome.status,
        "best": best is not None and best.number == outcome.number,
        "candidates": [kept.index for kept in outcome.kept],
        "score": outcome.score,
        "lines_added": outcome.added,
        "lines_removed": outcome.removed,
        "applied": made.model_dump(mode="json", exclude={"bundle", "candidate"}) if made is not None else None,
        "rejected": entry.rejected.model_dump(mode="json") if entry.rejected is not None else None,
    }


def _named_alike(run_id: str, record: CodeHistory) -> bool:
    """Return whether every branch's name follows from its number; in a fork some belong to the other run."""
    own = f"evolve/{run_id}/"
    made = [(outcome.number, outcome.made.branch) for outcome in record.outcomes if outcome.made is not None]
    return all(branch == f"{own}{number}" for number, branch in made)


def _mutation_table(run_id: str, record: CodeHistory) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("number", "from", "score", "+", "-", "files"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    apart = not _named_alike(run_id, record)
    if apart:
        table.add_column("branch", no_wrap=True)
    table.add_column("change", ratio=1)
    best = record.best_outcome
    for outcome in record.outcomes:
        made = outcome.made
        table.add_row(
            str(outcome.number),
            _starts(outcome.parents),
            "-" if outcome.score is None else f"{outcome.score:.4f}",
            f"{outcome.added:,}" if made is not None else "-",
            f"{outcome.removed:,}" if made is not None else "-",
            str(len(made.files)) if made is not None else "-",
            _mutation_outcome(outcome) + (" [bold green]best[/]" if outcome is best else ""),
            *([safe_line((made.branch if made is not None else None) or "-", 140)] if apart else []),
            cut_cell(safe_line(outcome.why, REQUEST)),
        )
    return table


def _mutation_outcome(outcome: MutationOutcome) -> str:
    if outcome.kept:
        which = ", ".join(str(kept.index) for kept in outcome.kept[:3]) + (", ..." if len(outcome.kept) > 3 else "")
        return f"[green]kept[/] as {which}"
    if outcome.entry.rejected is not None:
        return f"[red]rejected[/] ({safe_line(outcome.entry.rejected.stage, 20)})"
    return "[dim]dropped[/]"


def _show_reasons(console: Console, record: CodeHistory) -> None:
    """Print why mutations were rejected, each different reason once, the most frequent first."""
    alike: dict[str, list[int]] = {}
    for outcome in record.outcomes:
        if (rejected := outcome.entry.rejected) is not None:
            alike.setdefault(f"{rejected.stage}: {rejected.reason}", []).append(outcome.number)
    reasons = sorted(alike.items(), key=lambda reason: -len(reason[1]))
    for reason, numbers in reasons[:REASONS]:
        which = ", ".join(map(str, numbers[:NAMED])) + (f" and {len(numbers) - NAMED} more" if numbers[NAMED:] else "")
        echo(console, f"[red]rejected[/] at {safe_line(reason)} [dim]({which})[/]")
    if reasons[REASONS:]:
        echo(console, f"[dim]... and {counted(len(reasons) - REASONS, 'other reason')}[/]")


def _starts(parents: Sequence[int | None]) -> str:
    return " + ".join("seed" if parent is None else str(parent) for parent in parents)


DIFF_LINES_SHOWN = 400
"""Lines of a diff that are shown, unless in full."""

DIFF_COLUMNS_SHOWN = 300
"""Characters of a line that are shown, unless in full."""

_STYLES: dict[LineKind, str] = {"head": "bold", "at": "cyan", "add": "green", "del": "red"}


def show_diff(console: Console, diff: str, *, full: bool = False, more: str = "--json has them") -> None:
    """Print a unified diff, cut unless `full`; `more`: where the other lines are."""
    diff_lines = list(lines(diff))
    for each in diff_lines if full else diff_lines[:DIFF_LINES_SHOWN]:
        text = each.text if full or len(each.text) <= DIFF_COLUMNS_SHOWN else f"{each.text[: DIFF_COLUMNS_SHOWN - 1]}…"
        style = _STYLES.get(each.kind)
        echo(console, f"[{style}]{safe(text)}[/]" if style else safe(text))
    if len(diff_lines) > DIFF_LINES_SHOWN and not full:
        echo(console, f"[dim]... and {len(diff_lines) - DIFF_LINES_SHOWN:,} lines more; {more}[/]")


def diff_size(added: int, removed: int, files: int) -> str:
    """Return `+12 -3 in 2 files`, as markup."""
    return f"[green]+{added:,}[/] [red]-{removed:,}[/] in {files:,} file{'' if files == 1 else 's'}"
