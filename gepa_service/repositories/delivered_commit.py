"""The commit by which a version is delivered: the files that it writes, and its push as a branch."""

import json
import posixpath
import tempfile
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolverpc_common.evolved_commits import SERVICE_AUTHOR
from gepa_service.repositories.repository_access import AllowedRepository, fetch, remote_git
from sandbox_runtime.source.remote_git import Credentials, git

TEXTS = ".gepa/best_candidate.json"
"""The file that holds the texts of a version."""

PUSH_S = 300.0


@dataclass(frozen=True)
class DeliveredChange:
    """What a branch adds to `base`. `patch`: as of `Program`; `texts`: by component, without those that name code.

    `saved`: what the program saved; `saved_path`: the file for it, from the program's folder, None for the one that
    its `gepa.toml` names.
    """

    base: str
    patch: str | None
    texts: Mapping[str, str]
    message: str
    saved: Mapping[str, Any] | None = None
    saved_path: str | None = None

    def files(self, folder: str, config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """Return the JSON files that it writes, by path: also those from which the program reads its texts.

        `folder`: the program's; `config`: its `gepa.toml`.
        """
        found: dict[str, Mapping[str, Any]] = {TEXTS: self.texts} if self.texts else {}
        saved_path = self.saved_path or config.get("saved_program_json_path")
        for path, content in ((saved_path, self.saved), (config.get("seed_candidate"), self.texts)):
            if content and isinstance(path, str):
                place = posixpath.normpath(posixpath.join(folder, str(config.get("root", "")), path))
                if not place.startswith(("/", "../", ".git/")):
                    found[place] = content
        return found


async def push(repository: AllowedRepository, branch: str, change: DeliveredChange, credentials: Credentials) -> str:
    """Push the change as one commit to the branch, which is replaced if it is there; return the commit.

    Raises:
        SandboxError: git failed, for instance because the patch does not apply; the text has no secrets.
    """
    with tempfile.TemporaryDirectory(prefix="gepa-deliver-") as name:
        folder = Path(name)
        await git("init", "--quiet", "--bare", "--template=", ".", folder=folder)

        async def local(*arguments: str, stdin: bytes = b"") -> str:
            printed = await git(*arguments, folder=folder, bare=True, stdin=stdin, settings=SERVICE_AUTHOR)
            return printed.decode("utf-8", "replace").strip()

        await fetch(repository, change.base, folder, credentials, bare=True)
        await local("read-tree", change.base)
        if change.patch is not None:
            await local("apply", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=change.patch.encode())
        for path, content in change.files(repository.folder, await _config(local, repository.folder)).items():
            written = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
            blob = await local("hash-object", "-w", "--stdin", stdin=written.encode("utf-8", "surrogatepass"))
            await local("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
        tree = await local("write-tree")
        commit = await local("commit-tree", tree, "-p", change.base, stdin=change.message.encode())
        pushed = ("push", "--quiet", "--end-of-options", repository.url, f"+{commit}:refs/heads/{branch}")
        await remote_git(repository, *pushed, folder=folder, credentials=credentials, timeout_s=PUSH_S, bare=True)
    return commit


async def _config(local: Callable[..., Awaitable[str]], folder: str) -> dict[str, Any]:
    """Return the program's `gepa.toml` in the index; empty if there is none that can be read."""
    file = posixpath.join(folder, "gepa.toml")
    if not await local("ls-files", "--", file):
        return {}
    try:
        return tomllib.loads(await local("cat-file", "blob", f":{file}"))
    except ValueError:
        return {}
