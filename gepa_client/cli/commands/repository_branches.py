"""Branches in the user's repository: their deletion, and `evolverpc branches by-hand`."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evolverpc_common.display_text import command
from evolverpc_common.git import GitError
from gepa_client.cli.commands.store_access import confirm
from gepa_client.evolution.checkout import LocalCheckout
from gepa_client.evolution.names import BY_HAND
from gepa_client.views.console import echo, make_console, print_json, refuse, safe_line

NAMED = 10
"""Files and branches that a message names."""


def delete_branches(
    repository: LocalCheckout,
    runs: Sequence[str],
    *,
    keep: str | None,
    yes: bool,
    json_facts: Mapping[str, Any] | None,
) -> None:
    """Delete the branches of these runs, except `keep` and those that are checked out; ask first, unless `yes`.

    `json_facts`: None to print text, else what the JSON object holds besides the branches.
    """
    console = make_console()
    found = sorted(branch for run in runs for branch in repository.branches(run) if branch != keep)
    stays = f"the best stays: {safe_line(keep, 200)}" if keep is not None else None
    if found and not yes:
        if json_facts is not None:
            refuse("--json asks nothing: give --yes as well")
        echo(console, f"in {safe_line(str(repository.top))}, to be deleted: {safe_line(listed(found), 1000)}")
        if stays is not None:
            echo(console, stays)
        confirm(
            "Delete them?",
            no_answer="nothing was deleted: there was no answer; --yes deletes without asking",
            declined="nothing was deleted",
        )
    done = [repository.delete(run, but=keep) for run in runs]
    deleted, held = [branch for gone, _ in done for branch in gone], [branch for _, out in done for branch in out]
    if json_facts is not None:
        print_json({**json_facts, "deleted": deleted, "checked_out": held})
        return
    echo(console, f"{len(deleted):,} branch{'' if len(deleted) == 1 else 'es'} deleted")
    if held:
        echo(console, f"[yellow]checked out, so they stay:[/] {safe_line(listed(held), 1000)}")
    if stays is not None:
        echo(console, stays)


def branches_by_hand(repo: Path, *, delete: bool, yes: bool, as_json: bool) -> None:
    """List the branches that `evolverpc mutate` made, or delete those that are not checked out."""
    console = make_console()
    words = ["--repo", str(repo)] if repo != Path() else []
    try:
        repository = LocalCheckout(repo)
        runs = repository.runs(f"{BY_HAND}-")
        if delete:
            delete_branches(repository, runs, keep=None, yes=yes, json_facts={} if as_json else None)
            return
        found = sorted(branch for run in runs for branch in repository.branches(run))
    except GitError as error:
        refuse(str(error))
    if as_json:
        print_json({"branches": found})
        return
    if not found:
        echo(console, f"{safe_line(str(repository.top))} has no branches of changes made by hand")
        return
    for branch in found:
        echo(console, safe_line(branch, 200))
    again = command("branches", BY_HAND, "--delete", *words, store=None)
    see = shlex.join(["git", *(["-C", str(repo)] if words else []), "log", "--oneline", "-1", found[0]])
    echo(console, f"see one: {safe_line(see, 1000)}")
    echo(console, f"delete all of them: {safe_line(again, 1000)}")


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
