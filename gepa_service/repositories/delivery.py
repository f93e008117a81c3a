"""Push a version as a branch: its commits' changes, and its texts, on the commit that it was made from.

No file of the repository is checked out: the changes are applied to an index, so that nothing in it is run.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gepa_service.repositories.repository_access import AllowedRepository, fetch, remote_git
from sandbox_runtime.source.remote_git import Credentials, git

TEXTS = ".gepa/best_candidate.json"
"""The file that holds the texts of a version."""

PUSH_S = 300.0
AUTHOR = {"user.name": "GEPA", "user.email": "gepa@localhost"}


@dataclass(frozen=True)
class DeliveredChange:
    """What a branch adds to `base`. `patch`: as of `Program`; `texts`: by component, without those that name code."""

    base: str
    patch: str | None
    texts: Mapping[str, str]
    message: str


async def push(repository: AllowedRepository, branch: str, change: DeliveredChange, credentials: Credentials) -> str:
    """Push the change as one commit to the branch, which is replaced if it is there; return the commit.

    Raises:
        SandboxError: git failed, for instance because the patch does not apply; the text has no secrets.
    """
    with tempfile.TemporaryDirectory(prefix="gepa-deliver-") as name:
        folder = Path(name)
        await git("init", "--quiet", "--bare", "--template=", ".", folder=folder)

        async def local(*arguments: str, stdin: bytes = b"") -> str:
            printed = await git(*arguments, folder=folder, bare=True, stdin=stdin, settings=AUTHOR)
            return printed.decode("utf-8", "replace").strip()

        await fetch(repository, change.base, folder, credentials, bare=True)
        await local("read-tree", change.base)
        if change.patch is not None:
            await local("apply", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=change.patch.encode())
        if change.texts:
            written = json.dumps(dict(change.texts), indent=2, ensure_ascii=False) + "\n"
            blob = await local("hash-object", "-w", "--stdin", stdin=written.encode("utf-8", "surrogatepass"))
            await local("update-index", "--add", "--cacheinfo", f"100644,{blob},{TEXTS}")
        tree = await local("write-tree")
        commit = await local("commit-tree", tree, "-p", change.base, stdin=change.message.encode())
        pushed = ("push", "--quiet", "--end-of-options", repository.url, f"+{commit}:refs/heads/{branch}")
        await remote_git(repository, *pushed, folder=folder, credentials=credentials, timeout_s=PUSH_S, bare=True)
    return commit
