"""Which files of a program have changed since it was loaded."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path


def changed_files(digests: Mapping[str, str], folders: Sequence[Path]) -> list[str]:
    """Return those of the files that have another content now; a file that cannot be read is left out.

    `digests`: beginnings of SHA-256 by path, as in `ProgramInfo.files`. `folders`: a path is relative to the first that
    has it.
    """
    return [name for name, digest in digests.items() if _is_changed(name, digest, folders)]


def _is_changed(name: str, digest: str, folders: Sequence[Path]) -> bool:
    for folder in folders:
        try:
            content = (folder / name).read_bytes()
        except OSError:
            continue
        return not hashlib.sha256(content).hexdigest().startswith(digest)
    return False
