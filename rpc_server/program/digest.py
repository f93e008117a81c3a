"""Which settings change what a program does, and a digest of commands that state none themselves."""

import hashlib
import os
import re
from pathlib import Path
from typing import Any

from protocol import Candidate
from rpc_server.rpc import wire
from rpc_server.settings.settings import Settings

SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
"""Names of variables whose values may be renewed without the program being another one."""


def digested(settings: Settings, seed: Candidate | None) -> dict[str, Any]:
    """The settings that a program's digest covers, as JSON, without paths that differ from machine to machine.

    `seed`: the setting `seed_candidate`, read. Left out is what the scores do not come from: how fast the program runs,
    how long it may take, who may call it, what is logged, and the values of secrets.
    """
    root = settings.root.absolute()
    return {
        "program": None if settings.program is None else _seen_from(root, settings.program),
        "adapter": settings.adapter,
        "adapter_args": settings.adapter_args,
        "command": None if settings.command is None else list(settings.command),
        "seed_candidate": seed,
        "datasets": {split: _seen_from(root, path) for split, path in settings.files.items()},
        "env": {name: None if SECRET.search(name) else value for name, value in (settings.env or {}).items()},
        "transient": None if settings.transient is None else list(settings.transient),
        **({"dspy": _dspy(settings)} if settings.is_a == "dspy" else {}),
    }


def _dspy(settings: Settings) -> dict[str, Any]:
    """What else changes a DSPy program; the saved program counts by what is in it, which its own process reads."""
    names = ("metric", "field_descriptions", "demos", "add_format_failure_as_feedback", "seed", "reflection_lm")
    return {name: getattr(settings, name) for name in names}


def command_digest(settings: Settings, stated: dict[str, Any]) -> str | None:
    """SHA-256, in hexadecimal, over what is `digested` and the files that the command names; None without one."""
    if settings.command is None:
        return None
    digest = hashlib.sha256(wire.canonical(stated))
    for word in settings.command:
        for name in dict.fromkeys((word, word.partition("=")[2])):  # `--config=FILE` names one too
            path = os.path.join(settings.root, name)  # noqa: PTH118  # a word may be too long for a `Path` to ask about
            if name and os.path.isfile(path) and os.access(path, os.R_OK):  # noqa: PTH113  # as above
                with open(path, "rb") as file:  # noqa: PTH123  # as above
                    digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _seen_from(root: Path, path: Path | str) -> str:
    """A path from the project's folder, where it lies in there, whichever way it was given."""
    absolute = Path(os.path.normpath(root / path))
    return absolute.relative_to(root).as_posix() if absolute.is_relative_to(root) else str(path)
