"""Push a version as a branch: its commits' changes, and its texts, on the commit that it was made from.

No file of the repository is checked out: the changes are applied to an index, so that nothing in it is run.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gepa_service.repositories.repository_access import AllowedRepository, git_settings
from sandbox_runtime.source.remote_git import Credentials, GitCredentials, git

TEXTS = ".gepa/best_candidate.json"
"""The file that holds the texts of a version."""

FETCH_S = 600.0
PUSH_S = 300.0
AUTHOR = {"user.name": "GEPA", "user.email": "gepa@localhost"}


@dataclass(frozen=True)
class DeliveredChange:
    """What a branch adds to `base`. `patch`: as of `Program`; `texts`: by component, without those that name code."""

    base: str
    patch: str | None
    texts: Mapping[str, str]
    message: str


async def push(repository: AllowedRepository, branch: str, change: DeliveredChange, credentials: GitCredentials) -> str:
    """Push the change as one commit to the branch, which is replaced if it is there; return the commit.

    Raises:
        SandboxError: git failed, for instance because the patch does not apply; the text has no secrets.
    """
    pair = await credentials.for_url(repository.url)
    known = Credentials(repository.url, *pair) if pair is not None else None
    settings = {**git_settings(repository), **AUTHOR}
    with tempfile.TemporaryDirectory(prefix="gepa-deliver-") as name:
        folder = Path(name)
        await git("init", "--quiet", "--bare", "--template=", ".", folder=folder)

        async def local(*arguments: str, stdin: bytes = b"") -> str:
            printed = await git(*arguments, folder=folder, bare=True, stdin=stdin, settings=AUTHOR)
            return printed.decode("utf-8", "replace").strip()

        async def remote(*arguments: str, timeout_s: float) -> None:
            await git(
                *arguments,
                folder=folder,
                bare=True,
                network=True,
                settings=settings,
                credentials=known,
                timeout_s=timeout_s,
            )

        fetch = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head", "--end-of-options")
        await remote(*fetch, repository.url, change.base, timeout_s=FETCH_S)
        await local("read-tree", change.base)
        if change.patch is not None:
            await local("apply", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=change.patch.encode())
        if change.texts:
            written = json.dumps(dict(change.texts), indent=2, ensure_ascii=False) + "\n"
            blob = await local("hash-object", "-w", "--stdin", stdin=written.encode("utf-8", "surrogatepass"))
            await local("update-index", "--add", "--cacheinfo", f"100644,{blob},{TEXTS}")
        tree = await local("write-tree")
        commit = await local("commit-tree", tree, "-p", change.base, stdin=change.message.encode())
        refspec = f"+{commit}:refs/heads/{branch}"
        await remote("push", "--quiet", "--end-of-options", repository.url, refspec, timeout_s=PUSH_S)
    return commit
