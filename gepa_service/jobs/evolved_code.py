"""The code of a version: its commit, and the change from the commit that its job began with, as a diff and a patch."""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gepa_client.analysis.mutation_outcomes import code_history
from gepa_client.evolution.checkout import LocalCheckout
from gepa_client.journal.entries import CandidateRecord
from gepa_client.journal.store import Store
from gepa_service.repositories.delivery import AUTHOR
from protocol.code import code_at
from sandbox_runtime.source.remote_git import git

LARGEST_DIFF, LARGEST_PATCH = 2 << 20, 6 << 20
"""Characters of what a record holds; a larger one is left out."""

SUBJECT = "Change the code as GEPA found best"


@dataclass(frozen=True)
class EvolvedCode:
    """A commit that a run made. `diff`, `patch`: None if they are too large, or the commits cannot be read."""

    branch: str | None
    commit: str
    base: str
    diff: str | None = None
    patch: str | None = None


def evolved_code(candidates: Sequence[CandidateRecord], index: int) -> EvolvedCode | None:
    """Return the code of a candidate without its change; None if it has that of the seed."""
    base = next((code_at(each.texts)[1] for each in candidates if each.index == 0), None)
    branch, commit = next((code_at(each.texts) for each in candidates if each.index == index), (None, None))
    if base is None or commit is None or commit == base:
        return None
    return EvolvedCode(branch, commit, base)


def with_change(
    code: EvolvedCode,
    store: Store,
    run_id: str,
    candidates: Sequence[CandidateRecord],
    fetch: Callable[[Path, str], None],
) -> EvolvedCode:
    """Return the code with its change, made of the bundles in the run's record. No file is checked out. Blocks.

    `fetch`: brings a commit of the program's repository to a folder's.

    Raises:
        JournalError: the record cannot be read. GitError, SandboxError: git failed. What `fetch` raises.
    """
    history = code_history(store, run_id, candidates)
    with tempfile.TemporaryDirectory(prefix="gepa-version-") as name:
        folder = Path(name)
        asyncio.run(git("init", "--quiet", "--template=", ".", folder=folder))
        fetch(folder, code.base)
        label = code.branch or f"evolve/{run_id}/0"
        LocalCheckout(folder).make_branch(label, code.commit, history.bundles(code.commit))
        diff, patch = asyncio.run(_change(folder, code))
    return EvolvedCode(code.branch, code.commit, code.base, diff, patch)


async def _change(folder: Path, code: EvolvedCode) -> tuple[str | None, str | None]:
    as_text = ("--no-color", "--no-ext-diff", "--no-textconv")
    diff = await git("diff", *as_text, code.base, code.commit, "--", folder=folder)
    tree = (await git("rev-parse", f"{code.commit}^{{tree}}", folder=folder)).decode().strip()
    whole = await git("commit-tree", tree, "-p", code.base, "-m", SUBJECT, folder=folder, settings=AUTHOR)
    asked = ("format-patch", "--stdout", "--binary", "--no-signature", *as_text, "-1", whole.decode().strip())
    patch = await git(*asked, folder=folder)
    if not _is_text(patch):  # a file in another encoding: every file as a binary patch
        attributes = folder / ".git" / "info" / "attributes"
        attributes.parent.mkdir(exist_ok=True)
        attributes.write_text("* -diff\n", encoding="utf-8")
        patch = await git(*asked, folder=folder)
    read = diff.decode("utf-8", "replace"), patch.decode("utf-8")
    return read[0] if len(read[0]) <= LARGEST_DIFF else None, read[1] if len(read[1]) <= LARGEST_PATCH else None


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
