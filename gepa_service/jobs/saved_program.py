"""What a program saved of itself for a candidate: one of the JSON files that it wrote."""

import contextlib
import json
from pathlib import Path
from typing import Any

from gepa_service.model.program_version import PROGRAM_JSON

LARGEST = 4 << 20
"""Bytes of such a file; a larger one is left out."""


def saved_program(folder: Path) -> dict[str, Any] | None:
    """Return the object in `program.json` of a folder, else in its first JSON file that holds one; None without one."""
    for file in sorted(folder.rglob("*.json"), key=lambda file: (file.name != PROGRAM_JSON, file)):
        with contextlib.suppress(ValueError, OSError, RecursionError):
            if file.stat().st_size <= LARGEST and isinstance(read := json.loads(file.read_bytes()), dict):
                return read
    return None
