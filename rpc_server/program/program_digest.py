"""The digest of a program: what of its settings and its command's files it covers, and which files changed since."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evolverpc_common.redaction import SECRET_NAMES
from protocol import Candidate
from rpc_server import wire
from rpc_server.settings import Settings

_FILE_DIGEST = 16
"""Characters of a file's digest in `ProgramInfo.files`."""


def digest_settings(settings: Settings, seed: Candidate | None) -> dict[str, Any]:
    """Return the settings that a program's digest covers, as JSON, with paths relative to `root`.

    `seed`: the parsed setting `seed_candidate`. Speed, time limits, access, logging and the values of secrets are left
    out, as they do not change scores.
    """
    root = settings.root.absolute()
    dspy = {"metric": settings.metric, "inputs": settings.inputs}
    dspy |= settings.dspy.model_dump(exclude={"warn_on_score_mismatch"})
    return {
        "program": None if settings.program is None else _seen_from(root, settings.program),
        "adapter": settings.adapter,
        "adapter_args": settings.adapter_args,
        "command": None if settings.command is None else list(settings.command),
        "seed_candidate": seed,
        "datasets": {split: _seen_from(root, path) for split, path in settings.datasets.items()},
        "env": {name: None if SECRET_NAMES.search(name) else value for name, value in (settings.env or {}).items()},
        "trust_results": settings.trust_results,
        "model_hosts": list(settings.model_hosts),
        # A saved program counts by content, read in its process.
        **({"dspy": dspy} if settings.is_a == "dspy" else {}),
    }


def command_identity(settings: Settings, stated: dict[str, Any]) -> dict[str, Any]:
    """Return `digest`, the SHA-256 over the settings and files that the command names, and `files`, those files' own.

    Empty without a command.
    """
    if settings.command is None:
        return {}
    digest, files = hashlib.sha256(wire.canonical(stated)), {}
    for word in settings.command:
        for name in dict.fromkeys((word, word.partition("=")[2])):  # `--config=FILE` names one too
            path = os.path.join(settings.root, name)  # noqa: PTH118  # a word may be too long for a `Path` to ask about
            if name and os.path.isfile(path) and os.access(path, os.R_OK):  # noqa: PTH113  # as above
                with open(path, "rb") as file:  # noqa: PTH123  # as above
                    content = hashlib.file_digest(file, "sha256")
                digest.update(content.digest())
                files[name] = content.hexdigest()[:_FILE_DIGEST]
    return {"digest": digest.hexdigest(), "files": files}


def _seen_from(root: Path, path: Path | str) -> str:
    """Return a path relative to the project's folder if it lies in there."""
    absolute = Path(os.path.normpath(root / path))
    return absolute.relative_to(root).as_posix() if absolute.is_relative_to(root) else str(path)


def changed_files(digests: Mapping[str, str], folders: Sequence[Path]) -> list[str]:
    """Return those of the files that have another content now; a file that cannot be read is left out.

    `digests`: as in `ProgramInfo.files`. `folders`: a path is relative to the first that has it.
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
