"""`evolverpc branches RUN`: the code a run made, from its record alone: list it, diff it, check it out, delete it.

`evolverpc branches by-hand`: the branches that `evolverpc mutate` made in the repository.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from evolverpc_common.display_text import command, listed
from evolverpc_common.git import GitError
from gepa_client.analysis.mutation_outcomes import CodeHistory, MutationOutcome, code_history
from gepa_client.cli.arguments import AsJson, RunName, StoreUrl
from gepa_client.cli.commands.store_access import confirm, is_silent, open_cli_run
from gepa_client.errors import JournalError
from gepa_client.evolution.candidate_names import BY_HAND
from gepa_client.evolution.checkout import LocalCheckout, holds_commit
from gepa_client.journal.entries import StoredRun
from gepa_client.views.candidate_view import outcome_as_json, show_code, show_diff
from gepa_client.views.console import echo, echo_next, make_console, print_json, refuse, safe_line
from protocol.code import GIT_BRANCH, code_at

BEST = "best"


@dataclass(frozen=True)
class _BranchesRequest:
    """The run, its code, and how to answer."""

    run: StoredRun
    record: CodeHistory
    repo: Path
    store: str | None
    as_json: bool
    console: Console

    def next(self, *words: str) -> None:
        """Print a next command about the run, for the same repository."""
        following = command("branches", self.run.id, *words, *_repo_words(self), store=self.store)
        echo_next(self.console, following)


def branches(
    run: RunName,
    diff: Annotated[
        str | None,
        typer.Option("--diff", metavar="N|best", help="A change's diff against its parent, as a patch."),
    ] = None,
    against_seed: Annotated[
        bool, typer.Option("--against-seed", help="With --diff: against the seed's code; needs the repository.")
    ] = False,
    check_out: Annotated[
        bool, typer.Option("--check-out", help="Make the best candidate's branch in the repository, and switch to it.")
    ] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the run's other branches from the repository; the best stays.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --check-out and --delete: do not ask.")] = False,
    repo: Annotated[
        Path, typer.Option(metavar="PATH", help="The program's repository (default: the one you are in).")
    ] = Path(),
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the code changes that a run tried, from its record; its servers may be gone.

    `by-hand` as RUN: the branches that `evolverpc mutate` made in the repository.

    Exits with 0 if it was done, 1 if you declined, 2 if it is impossible.
    """
    chosen = [name for name, given in (("--diff", diff), ("--check-out", check_out), ("--delete", delete)) if given]
    if len(chosen) > 1:
        refuse(f"one at a time: {' and '.join(chosen)} were given")
    if against_seed and diff is None:
        refuse("--against-seed is for --diff")
    if yes and not (delete or check_out):
        refuse("--yes is for --check-out and --delete")
    if run == BY_HAND:
        if diff is not None or check_out:
            refuse(f"changes made by hand are in the repository alone: use git there; {BY_HAND} takes only --delete")
        branches_by_hand(repo, delete=delete, yes=yes, as_json=as_json)
        return
    with open_cli_run(store, run) as (kept, found):
        record = code_history(kept, found.id, kept.candidates(found.id))
    asked = _BranchesRequest(found, record, repo, store, as_json, make_console())
    if not record.outcomes:
        _print_no_changes(asked, wanted=check_out or diff is not None)
        return
    try:
        if diff is not None:
            _diff(asked, diff, against_seed=against_seed)
        elif check_out:
            _check_out(asked, yes=yes)
        elif delete:
            _delete(asked, yes=yes)
        else:
            _list(asked)
    except (GitError, JournalError) as error:
        refuse(str(error))


def _print_no_changes(asked: _BranchesRequest, *, wanted: bool) -> None:
    """Print or refuse, as there is no change. `wanted`: a change was asked for, not only a list."""
    nothing = (
        f"{safe_line(asked.run.id)} changed no code, which takes a run with a `reflection_lm`, of a server that was "
        "started with --allow-mutations"
    )
    following = command("show", asked.run.id, store=asked.store)
    if wanted:
        refuse(f"{nothing}; `{following}`")
    if asked.as_json:
        print_json({"run": asked.run.id, "changes": []}, indent=2)
        return
    echo(asked.console, nothing)
    echo_next(asked.console, following)


def _repo_words(asked: _BranchesRequest) -> list[str]:
    """Return `--repo` as given, or with a placeholder if the present folder is not the program's repository."""
    if asked.repo != Path():
        return ["--repo", str(asked.repo)]
    seed = _seed(asked.record)
    return [] if seed is None or holds_commit(Path(), seed) else ["--repo", "REPOSITORY"]


def _list(asked: _BranchesRequest) -> None:
    record = asked.record
    if asked.as_json:
        print_json(
            {"run": asked.run.id, "changes": [outcome_as_json(record, outcome) for outcome in record.outcomes]},
            indent=2,
        )
        return
    show_code(asked.console, asked.run.id, record)
    echo(asked.console, "")
    if record.best_outcome is not None:
        asked.next("--diff", BEST)
        asked.next("--check-out")
    else:
        asked.next("--diff", str(record.outcomes[-1].number))


def _diff(asked: _BranchesRequest, which: str, *, against_seed: bool) -> None:
    outcome = _outcome_named(asked.record, which)
    made, rejected = outcome.made, outcome.entry.rejected
    if made is None and (rejected is None or rejected.diff is None):
        stage = f" at stage {rejected.stage}" if rejected is not None else ""
        refuse(f"{outcome.number} was rejected{stage}, and nothing was recorded of its diff")
    if not against_seed:
        text = made.diff if made is not None else (rejected.diff if rejected is not None else None) or ""
    elif made is None:
        refuse(f"{outcome.number} was rejected, so there is no commit to compare")
    elif (seed := _seed(asked.record)) is None:
        refuse("the record does not name the commit of the seed")
    else:
        text = _repository(asked).diff(seed, made.commit, asked.record.bundles(made.commit))
    if asked.as_json:
        print_json(outcome_as_json(asked.record, outcome) | {"diff": text}, indent=2)
    elif asked.console.is_terminal:
        show_diff(asked.console, text, full=True)
    else:
        patch = text if text.endswith("\n") else f"{text}\n"
        sys.stdout.buffer.write(patch.encode("utf-8", "surrogateescape"))  # for `git apply`: every byte of it


def _check_out(asked: _BranchesRequest, *, yes: bool) -> None:
    outcome = _best(asked.record)
    if outcome.made is None or outcome.made.branch is None:
        refuse("the record names no branch of the best candidate's code")
    repository = _repository(asked)
    if changed := repository.changed():
        refuse(f"{repository.top} has changes that are not committed: {listed(changed)}; commit or stash them first")
    before = repository.way_back()
    here = ["-C", str(asked.repo)] if asked.repo != Path() else []
    back = shlex.join(["git", *here, "switch", *before]) if before != (outcome.made.branch,) else None
    repository.make_branch(outcome.made.branch, outcome.made.commit, asked.record.bundles(outcome.made.commit))
    left = repository.head()
    unasked = repository.run_unasked(_seed(asked.record) or left, outcome.made.commit)
    if unasked and left != outcome.made.commit and not yes:
        _confirm_check_out(asked, unasked)
    repository.switch(outcome.made.branch)
    filtered = repository.filtered(left, outcome.made.commit)
    texts = _texts_apart(asked.record)
    if asked.as_json:
        done: dict[str, Any] = {"run": asked.run.id, "repository": str(repository.top), "branch": outcome.made.branch}
        done |= {"commit": outcome.made.commit, "back": back}
        print_json({**done, "run_unasked": unasked, "unfiltered": filtered})
        return
    echo(
        asked.console,
        f"[bold]{safe_line(outcome.made.branch, 200)}[/] is checked out in {safe_line(str(repository.top))}",
    )
    if filtered:
        echo(
            asked.console,
            f"[yellow]git's filters were not run:[/] {safe_line(listed(sorted(filtered)), 1000)} are as the commit "
            "stores them; to run the filters, delete these files, then `git checkout -- .`",
        )
    if asked.record.best is not None and texts:
        echo(asked.console, f"[yellow]not in its code:[/] the best candidate's {safe_line(', '.join(texts))}")
        echo_next(
            asked.console, command("show", asked.run.id, "--candidate", str(asked.record.best.index), store=asked.store)
        )
    if back is not None:
        echo(asked.console, f"back: {safe_line(back)}")
    asked.next("--delete")


def _confirm_check_out(asked: _BranchesRequest, unasked: Mapping[str, str]) -> None:
    """List the changed files that other programs run by themselves, and ask."""
    how = "look at them with --diff best, then give --yes"
    if asked.as_json:
        refuse(f"the change touches files that programs run unasked: {listed([*unasked])}; {how}")
    echo(asked.console, "[yellow]the change touches files that programs run unasked:[/]")
    for path, reason in unasked.items():
        echo(asked.console, f"  {safe_line(path)}: {safe_line(reason)}")
    confirm(
        "Check it out?",
        no_answer=f"nothing was checked out, as there was no answer; {how}",
        declined="nothing was checked out; the branch is there",
    )


def _seed(record: CodeHistory) -> str | None:
    """Return the commit that the run starts from."""
    return code_at(record.seed.texts)[1] if record.seed is not None else None


def _repository(asked: _BranchesRequest) -> LocalCheckout:
    """Return the program's repository, which has the commit that the run starts from."""
    repository = LocalCheckout(asked.repo)
    seed = _seed(asked.record)
    if seed is not None and not repository.has(seed):
        refuse(
            f"{repository.top} does not hold the commit {seed[:7]} that the run starts from: "
            "go to the program's repository, or name it with --repo"
        )
    return repository


def _delete(asked: _BranchesRequest, *, yes: bool) -> None:
    if asked.run.status == "running" and not is_silent(asked.run):
        refuse(
            f"{asked.run.id} is running, and needs its branches: `{command('cancel', asked.run.id, store=asked.store)}`"
        )
    best = asked.record.best_outcome
    keep = best.made.branch if best is not None and best.made is not None else None
    facts = {"run": asked.run.id, "best": keep} if asked.as_json else None
    delete_branches(LocalCheckout(asked.repo), [asked.run.id], keep=keep, yes=yes, json_facts=facts)
    if facts is None:
        echo(asked.console, "the run's record keeps all of them; `--check-out` makes the best one again")


def _outcome_named(record: CodeHistory, which: str) -> MutationOutcome:
    if which == BEST:
        return _best(record)
    outcome = record.outcome_of(int(which)) if which.isascii() and which.isdigit() else None
    if outcome is None:
        there = ", ".join(str(known.number) for known in record.outcomes)
        refuse(f"there is no change {which}: give {BEST}, or one of {there}")
    return outcome


def _best(record: CodeHistory) -> MutationOutcome:
    outcome = record.best_outcome
    if outcome is None:
        refuse("the best candidate runs the seed's code: no change of code was better")
    return outcome


def _texts_apart(record: CodeHistory) -> list[str]:
    """Return the components of the best candidate that are not code, and differ from the seed's."""
    if record.seed is None or record.best is None:
        return []
    seed = record.seed.texts
    return [name for name, text in record.best.texts.items() if name != GIT_BRANCH and text != seed.get(name)]


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
    stay = repository.checked_out() | {keep}
    found = sorted(branch for run in runs for branch in repository.branches(run) if branch not in stay)
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
