"""Commits of evolved code: their authors, the names of their refs, and the bundles by which they travel."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from evolverpc_common.git import GitError

MUTATION_AUTHOR = {"user.name": "gepa-server", "user.email": "gepa-server@localhost"}
"""The author of the commits that mutations make, as settings of git."""

SERVICE_AUTHOR = {"user.name": "GEPA", "user.email": "gepa@localhost"}
"""The author of the commits that the service delivers."""

BRANCHES = "evolve/"
"""The prefix of branches that mutations create."""

BRANCH = re.compile(r"evolve/[A-Za-z0-9][A-Za-z0-9_-]{0,99}/[0-9]{1,9}")
"""The only branches that are made or deleted: `evolve/RUN/NUMBER`."""

ANSWERS = "refs/evolverpc/"
"""The prefix of refs that keep, under a branch's name without `evolve/`, its mutation's result as a blob.

Not `refs/evolve/`: git resolves `evolve/r/0` to `refs/evolve/r/0` before it considers the branch of that name.
"""

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""The full id of a commit."""

_SIGNATURES = (b"# v2 git bundle", b"# v3 git bundle")
_NEEDED = re.compile(rf"-({COMMIT.pattern})( .*)?")
_NAMED = re.compile(rf"({COMMIT.pattern}) (\S+)")


@dataclass(frozen=True)
class ParsedBundle:
    """A git bundle (gitformat-bundle(5)) whose prerequisites are here. `heads`: commits by ref."""

    heads: dict[str, str]
    pack: bytes


def read_bundle(content: bytes, has: Callable[[str], bool]) -> ParsedBundle:
    """Return the heads of a bundle and its pack, unparsed. `has`: reports whether a commit is here.

    git's own `bundle verify` and `fetch` refuse commits that no branch reaches, and before 2.46 check no object.

    Raises:
        GitError: it is not a bundle, its objects are incomplete (a filter), or a commit that it builds on is missing.
    """
    head, _, pack = content.partition(b"\n\n")
    signature, *lines = head.split(b"\n")
    if signature not in _SIGNATURES:
        raise GitError("it is not a git bundle")
    heads: dict[str, str] = {}
    for line in lines:
        text = line.decode("utf-8", "replace")
        if text.startswith("@object-format="):
            continue  # the ids' length shows it
        if (need := _NEEDED.fullmatch(text)) is not None:
            if not has(need[1]):
                raise GitError(f"the bundle builds on the commit {need[1]}, which is not here")
        elif (named := _NAMED.fullmatch(text)) is not None:
            heads[named[2]] = named[1]
        else:
            raise GitError(f"the bundle's header has a line {text!r:.80} that means nothing here")
    return ParsedBundle(heads, pack)
