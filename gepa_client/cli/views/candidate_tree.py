"""The candidates of a run as a tree for a terminal: each below the first of its parents."""

from collections.abc import Callable, Sequence

from rich.tree import Tree

from gepa_client.journal.entries import Kept
from protocol.code import code_at

STEP = 4
"""Columns a level is indented by."""

ROOM = 44
"""Columns a candidate's own line is left."""


def tree(candidates: Sequence[Kept], front: set[int], best: int, width: int) -> Tree:
    """The tree, at most `width` columns wide: a branch too deep for it goes on at the left, saying from where."""
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


def _labels(candidates: Sequence[Kept], front: set[int], best: int) -> Callable[[Kept, int | None], str]:
    """How a candidate's line is written; `above` is the parent it hangs below, which need not be named then."""
    digits = len(str(candidates[-1].index))
    commits = {kept.index: code_at(kept.texts)[1] for kept in candidates}

    def label(kept: Kept, above: int | None) -> str:
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
