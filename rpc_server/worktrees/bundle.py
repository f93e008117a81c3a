"""Reads git bundles: what they name, what they build on, and the pack of their objects; see gitformat-bundle(5)."""

import re
from dataclasses import dataclass

from evolverpc_common.git import GitError

_SIGNATURES = (b"# v2 git bundle", b"# v3 git bundle")
_NEEDED = re.compile(r"-([0-9a-f]{40}|[0-9a-f]{64})( .*)?")
_NAMED = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64}) (\S+)")


@dataclass(frozen=True)
class Bundle:
    """`heads`: commits by ref. `needed`: the commits that must be there before its pack is unpacked."""

    heads: dict[str, str]
    needed: tuple[str, ...]
    pack: bytes


def read_bundle(content: bytes) -> Bundle:
    """What is in a bundle, its pack unread.

    git's own `bundle verify` and `fetch` are no use for it: they refuse commits that no branch leads to any more, and
    before 2.46 check no object.

    Raises:
        GitError: it is no bundle, or one whose objects are not all there (a filter).
    """
    head, _, pack = content.partition(b"\n\n")
    signature, *lines = head.split(b"\n")
    if signature not in _SIGNATURES:
        raise GitError("it is not a git bundle")
    heads: dict[str, str] = {}
    needed = []
    for line in lines:
        text = line.decode("utf-8", "replace")
        if text.startswith("@object-format="):
            continue  # what the ids' length says already
        if (need := _NEEDED.fullmatch(text)) is not None:
            needed.append(need[1])
        elif (named := _NAMED.fullmatch(text)) is not None:
            heads[named[2]] = named[1]
        else:
            raise GitError(f"the bundle's header has a line {text!r:.80} that means nothing here")
    return Bundle(heads, tuple(needed), pack)
