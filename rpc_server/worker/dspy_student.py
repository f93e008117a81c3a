"""A DSPy program as text components, and its saved state in the JSON that `program.load` reads."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
from typing import Any, Sequence

from . import encode
from .errors import ProgramProblem

_DEFAULT = "program.json"
_STAGE = "saved_program_json_path"


class SavedProgram:
    """The file at `path`, relative to `root`; by default `program.json`, which is written but never read."""

    def __init__(self, path: str | None, root: str) -> None:
        self._root = os.path.abspath(root)
        self.path = os.path.normpath(os.path.join(self._root, path or _DEFAULT))
        self.is_set = path is not None
        if not self.path.endswith(".json"):
            raise ProgramProblem(_STAGE, "%s: a saved program ends in .json" % self.path)
        self.digest: str | None = None

    @property
    def inside(self) -> str | None:
        """The path from `root`; None if the file is elsewhere."""
        relative = os.path.relpath(self.path, self._root)
        return None if relative.split(os.sep)[0] == os.pardir else relative.replace(os.sep, "/")

    def load_into(self, program: Any) -> None:
        """Load the saved state into the program, if there is one."""
        if not self.is_set or not os.path.exists(self.path):
            return
        try:
            with open(self.path, "rb") as file:
                self.digest = hashlib.sha256(file.read()).hexdigest()
            program.load(self.path)
        except Exception as problem:  # noqa: BLE001  # DSPy checks nothing: an invalid file may raise any error
            message = "%s cannot be loaded into the program: %s: %s" % (self.path, type(problem).__name__, problem)
            raise ProgramProblem(_STAGE, message) from None

    def write(self, program: Any) -> None:
        """Save the program's state atomically."""
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
        """Refuse to overwrite a default path that is not a saved program."""
        if self.is_set or not os.path.exists(self.path):
            return
        try:
            with open(self.path, encoding="utf-8") as file:
                saved = json.load(file)
        except ValueError:
            saved = None
        if not isinstance(saved, dict) or "metadata" not in saved:
            raise ProgramProblem("finalize", "%s is no saved program: set `%s`" % (self.path, _STAGE))


class UnusableText(Exception):
    """A component's text does not fit the program: the candidate's fault."""


class Student:
    """The user's program, never run itself: candidates are evaluated on copies.

    A predictor's instructions are the component of its name, as in `dspy.GEPA`. Opt-in: with `field_descriptions`
    `<predictor>.inputs.<field>` and `<predictor>.outputs.<field>`, with `demos` `<predictor>.demos`, a JSON list.
    """

    def __init__(self, program: Any, *, field_descriptions: bool, demos: bool, inputs: Sequence[str] | None) -> None:
        """Read it. `inputs`: the fields of rows that the program is called with; None if its parameters name them."""
        self.program = program
        self.predictors: dict[str, Any] = dict(program.named_predictors())
        if not self.predictors:
            raise ProgramProblem("program", "%s has no predictors, so no instructions" % _name(program))
        self.seed: dict[str, str] = {name: one.signature.instructions for name, one in self.predictors.items()}
        self.descriptions: dict[str, str] = {}
        self._predictor_of = {name: name for name in self.seed}
        self._fields: dict[str, tuple[str, str]] = {}
        self._demos: dict[str, str] = {}
        for name, predictor in self.predictors.items():
            if field_descriptions:
                self._add_fields(name, predictor.signature)
            if demos:
                self._add_demos(name, predictor)
        self._takes = _input_names(program, self.predictors.values()) if inputs is None else frozenset(inputs)

    def predictor_of(self, component: str) -> str:
        """Return the name of a component's predictor."""
        return self._predictor_of[component]

    def inputs_among(self, names: Any) -> list[str]:
        """Return those of a row's fields that the program is called with; the others are for the metric."""
        return [name for name in names if self._takes is None or name in self._takes]

    def apply(self, copy: Any, candidate: dict[str, str]) -> Any:
        """Return the copy with the opt-in components' texts.

        Raises:
            UnusableText: naming the component.
        """
        parts = dict(copy.named_predictors())
        for component, (name, field) in self._fields.items():
            text = candidate.get(component, self.seed[component])
            if text != self.seed[component]:
                parts[name].signature = parts[name].signature.with_updated_fields(field, desc=text)
        for component, name in self._demos.items():
            text = candidate.get(component, self.seed[component])
            if text != self.seed[component]:
                parts[name].demos = _read_demos(component, text)
        return copy

    def _add_fields(self, name: str, signature: Any) -> None:
        for side, fields in (("inputs", signature.input_fields), ("outputs", signature.output_fields)):
            for field, info in fields.items():
                component = "%s.%s.%s" % (name, side, field)
                about = "Description of the %s field `%s` of `%s`." % (side[:-1], field, name)
                self._add(component, name, (info.json_schema_extra or {}).get("desc") or "", about)
                self._fields[component] = (name, field)

    def _add_demos(self, name: str, predictor: Any) -> None:
        component = name + ".demos"
        try:
            text = encode.to_text(predictor.dump_state()["demos"], component)
        except encode.NotJsonError as problem:
            raise ProgramProblem("demos", str(problem)) from None
        self._add(component, name, text, "Worked examples for `%s`: a JSON list of objects, field to value." % name)
        self._demos[component] = name

    def _add(self, component: str, predictor: str, text: str, about: str) -> None:
        if component in self.seed:
            raise ProgramProblem("program", "two components would have the name %r: rename a predictor" % component)
        self.seed[component] = text
        self.descriptions[component] = about
        self._predictor_of[component] = predictor


def _read_demos(component: str, text: str) -> list[dict[str, Any]]:
    try:
        demos = json.loads(text)
    except ValueError as problem:
        raise UnusableText("component %r: not JSON: %s" % (component, problem)) from None
    if not isinstance(demos, list) or not all(isinstance(demo, dict) for demo in demos):
        raise UnusableText("component %r: not a JSON list of objects" % component)
    return demos


def _input_names(program: Any, predictors: Any) -> frozenset[str] | None:
    """Return the parameters of `forward`; if it accepts any, its predictors' external inputs.

    None if nothing is known: then it is called with the whole row.
    """
    forward = getattr(type(program), "forward", None)
    if forward is None:
        raise ProgramProblem("program", "%s has no method `forward`" % _name(program))
    parameters = list(inspect.signature(forward).parameters.values())[1:]  # without `self`
    takes = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        signatures = [predictor.signature for predictor in predictors]
        made = {field for signature in signatures for field in signature.output_fields}
        takes |= {field for signature in signatures for field in signature.input_fields} - made
        if not takes:
            return None
    return frozenset(takes)


def _name(program: Any) -> str:
    return encode.dotted(type(program))
