"""The code of a version: the change from the commit that its job began with, as a diff and a patch."""

import asyncio
import base64
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from gepa_client.evolution.checkout import LocalCheckout
from gepa_service.model.program_version import Program
from gepa_service.repositories.delivery import AUTHOR
from sandbox_runtime.source.remote_git import git

LARGEST_DIFF, LARGEST_PATCH = 2 << 20, 6 << 20
"""Characters of what a record holds; a larger one is left out."""

SUBJECT = "Change the code as GEPA found best"


def with_code(program: Program, bundles: Sequence[bytes], fetch: Callable[[Path, str], None]) -> Program:
    """Return a version with the change of its code, if there is one, which the bundles hold, parents first. Blocks.

    No file is checked out. `fetch`: brings a commit of the program's repository to a folder's. A change that is too
    large is left out.

    Raises:
        GitError, SandboxError: git failed. What `fetch` raises.
    """
    base, commit = program.base_commit, program.commit
    if base is None or commit is None:
        return program
    with tempfile.TemporaryDirectory(prefix="gepa-version-") as name:
        folder = Path(name)
        asyncio.run(git("init", "--quiet", "--template=", ".", folder=folder))
        fetch(folder, base)
        LocalCheckout(folder).make_branch(program.branch or f"evolve/{program.job_id}/0", commit, bundles)
        diff, patch = asyncio.run(_change(folder, base, commit))
    kept = tuple(base64.b64encode(each).decode() for each in bundles)
    is_small = sum(map(len, kept)) <= LARGEST_PATCH
    return program.model_copy(update={"diff": diff, "patch": patch, "bundles": kept if is_small else ()})


async def _change(folder: Path, base: str, commit: str) -> tuple[str | None, str | None]:
    as_text = ("--no-color", "--no-ext-diff", "--no-textconv")
    diff = await git("diff", *as_text, base, commit, "--", folder=folder)
    tree = (await git("rev-parse", f"{commit}^{{tree}}", folder=folder)).decode().strip()
    whole = await git("commit-tree", tree, "-p", base, "-m", SUBJECT, folder=folder, settings=AUTHOR)
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
