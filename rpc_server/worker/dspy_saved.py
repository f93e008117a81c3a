"""The program's saved state: read before a run, written after it, in the JSON that `program.load` takes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import Any

from .failures import ProgramProblem

_DEFAULT = "program.json"
_STAGE = "saved_program_json_path"


class SavedProgram:
    """The file at `path`, as seen from `root`; without a path `program.json` there, which is written but never read."""

    def __init__(self, path: str | None, root: str) -> None:
        self._root = os.path.abspath(root)
        self.path = os.path.normpath(os.path.join(self._root, path or _DEFAULT))
        self.is_set = path is not None
        if not self.path.endswith(".json"):
            raise ProgramProblem(_STAGE, "%s: a saved program ends in .json" % self.path)
        self.digest: str | None = None

    @property
    def inside(self) -> str | None:
        """The path from `root`; None where the file lies elsewhere."""
        relative = os.path.relpath(self.path, self._root)
        return None if relative.split(os.sep)[0] == os.pardir else relative.replace(os.sep, "/")

    def load_into(self, program: Any) -> None:
        """Give the program the saved state, if there is one."""
        if not self.is_set or not os.path.exists(self.path):
            return
        try:
            with open(self.path, "rb") as file:
                self.digest = hashlib.sha256(file.read()).hexdigest()
            program.load(self.path)
        except Exception as problem:  # noqa: BLE001  # DSPy checks nothing: what does not fit raises its own way
            message = "%s cannot be loaded into the program: %s: %s" % (self.path, type(problem).__name__, problem)
            raise ProgramProblem(_STAGE, message) from None

    def write(self, program: Any) -> None:
        """Save the program's state, whole or not at all."""
        self._check_replaceable()
        folder, name = os.path.split(self.path)
        os.makedirs(folder, exist_ok=True)
        unfinished = os.path.join(folder, ".%d-%s" % (os.getpid(), name))
        try:
            program.save(unfinished)
            os.replace(unfinished, self.path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(unfinished)

    def _check_replaceable(self) -> None:
        """A file that nobody named is only written over where it is a saved program."""
        if self.is_set or not os.path.exists(self.path):
            return
        try:
            with open(self.path, encoding="utf-8") as file:
                saved = json.load(file)
        except ValueError:
            saved = None
        if not isinstance(saved, dict) or "metadata" not in saved:
            raise ProgramProblem("finalize", "%s is no saved program: set `%s`" % (self.path, _STAGE))
