"""`gepa-client branches by-hand`: the branches that `gepa-client mutate` made in a repository: list or delete them."""

import shlex
from pathlib import Path

from evolverpc_common.display_text import command
from gepa_client.cli.commands.store_access import confirm
from gepa_client.cli.views.console import echo, make_console, print_json, refuse, safe_line
from gepa_client.evolution.checkout import CheckoutError, UserRepository
from gepa_client.evolution.names import BY_HAND


def branches_by_hand(repo: Path, *, delete: bool, yes: bool, as_json: bool) -> None:
    """List them, or delete those that are not checked out; asks before it deletes, unless `yes`."""
    console = make_console()
    words = ["--repo", str(repo)] if repo != Path() else []
    try:
        repository = UserRepository(repo)
        runs = repository.runs(f"{BY_HAND}-")
        found = sorted(branch for run in runs for branch in repository.branches(run))
        if not delete:
            if as_json:
                print_json({"branches": found})
                return
            for branch in found:
                echo(console, safe_line(branch, 200))
            if not found:
                echo(console, f"{safe_line(str(repository.top))} has no branches of changes made by hand")
                return
            again = command("branches", BY_HAND, "--delete", *words, store=None)
            see = shlex.join(["git", *(["-C", str(repo)] if words else []), "log", "--oneline", "-1", found[0]])
            echo(console, f"see one: {safe_line(see, 1000)}")
            echo(console, f"delete all of them: {safe_line(again, 1000)}")
            return
        if found and not yes:
            _confirm(found, as_json=as_json)
        deleted, held = [], []
        for run in runs:
            gone, stays = repository.delete(run, but=None)
            deleted += gone
            held += stays
    except CheckoutError as error:
        refuse(str(error))
    if as_json:
        print_json({"deleted": deleted, "checked_out": held})
        return
    echo(console, f"{len(deleted):,} branch{'' if len(deleted) == 1 else 'es'} deleted")
    if held:
        echo(console, f"[yellow]checked out, so they stay:[/] {safe_line(', '.join(held), 1000)}")


def _confirm(found: list[str], *, as_json: bool) -> None:
    if as_json:
        refuse("--json asks nothing: give --yes as well")
    echo(make_console(), f"to be deleted: {safe_line(', '.join(found), 1000)}")
    confirm(
        "Delete them?",
        no_answer="nothing was deleted: there was no answer; --yes deletes without asking",
        declined="nothing was deleted",
    )
