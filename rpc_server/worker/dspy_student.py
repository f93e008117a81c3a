"""A DSPy program as text components, its saved state in the JSON that `program.load` reads, and its rows."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import json
import os
import typing
from typing import Any, Mapping, Sequence

from . import json_values
from .errors import InvalidResult, ProgramProblem
from .program_loading import Config

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

    def __init__(self, program: Any, config: Config) -> None:
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
            if config.field_descriptions:
                self._add_fields(name, predictor.signature)
            if config.demos:
                self._add_demos(name, predictor)
        own = config.inputs  # of rows; None if the program's parameters name them
        self._takes = _input_names(program, self.predictors.values()) if own is None else frozenset(own)

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
            text = json_values.to_text(predictor.dump_state()["demos"], component)
        except json_values.NotJsonError as problem:
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
    return json_values.dotted(type(program))


_JSON_TYPES = (str, int, float, bool, type(None), list, dict, Any, object)
_TEXT_TYPES = (str, Any, object)


class Rows:
    """Makes the example of a row: what the program is called with is its inputs, the metric gets all of it.

    A row that the caller holds as an object is that object. In a row of JSON the inputs have the types that the
    signatures declare, where JSON lacks these (`dspy.History`, `dspy.Image`, pydantic models, dates, enums, also inside
    lists and optional types); all else is as written. Each field of a row of texts, such as one of a CSV file, has the
    declared type, read as DSPy reads a model's answer; an empty text is None if the type is no text. A field that two
    predictors declare with different types stays as it is.
    """

    def __init__(self, dspy: Any, student: Student, held: Mapping[str, Sequence[Any]]) -> None:
        """`held`: the caller's own objects by split."""
        self._dspy = dspy
        self._student = student
        self._held = held
        self._type_adapter = importlib.import_module("pydantic").TypeAdapter
        self._parse_value = importlib.import_module("dspy.adapters.utils").parse_value
        declared: dict[str, list[Any]] = {}
        for predictor in student.predictors.values():
            for name, field in predictor.signature.fields.items():
                declared.setdefault(name, []).append(field.annotation)
        self._types = {
            name: first
            for name, (first, *others) in declared.items()
            if all(other == first for other in others) and self._is_readable(first)
        }

    def example(self, given: dict[str, Any]) -> Any:
        """Return the row of a request as an example with its inputs.

        Raises:
            InvalidResult: it is no object, or a value does not fit its type; the message names the field.
        """
        data = given["data"]
        if isinstance(data, list) and self._held:
            split, position = data
            return self._with_inputs(self._held[split][position])
        if not isinstance(data, dict):
            raise InvalidResult("an example's data must be an object, field to value")
        inputs = self._student.inputs_among(data)
        if given.get("untyped"):
            values = {name: self._from_text(name, value) for name, value in data.items()}
        else:
            values = {**data, **{name: self._from_json(name, data[name]) for name in inputs}}
        return self._dspy.Example(values).with_inputs(*inputs)

    def _with_inputs(self, row: Any) -> Any:
        """Return the object itself; if its inputs are not stated, a copy with those that the program takes."""
        try:
            row.inputs()
        except ValueError:
            return row.with_inputs(*self._student.inputs_among(row.keys()))
        return row

    def _from_text(self, name: str, value: Any) -> Any:
        declared = self._types.get(name, str)
        if not isinstance(value, str) or _takes_text(declared):
            return value
        return self._checked(name, value, self._parse_value) if value.strip() else None

    def _from_json(self, name: str, value: Any) -> Any:
        if _is_json(self._types.get(name, str)):
            return value
        return self._checked(name, value, lambda value, declared: self._type_adapter(declared).validate_python(value))

    def _checked(self, name: str, value: Any, read: Any) -> Any:
        declared = self._types[name]
        try:
            return read(self._with_images(declared, value), declared)
        except ValueError as problem:  # that of pydantic too
            message = "the row's field %r is not a %s: %s" % (name, getattr(declared, "__name__", declared), problem)
            raise InvalidResult(message) from None

    def _with_images(self, declared: Any, value: Any) -> Any:
        """Return texts as the images that they name; pydantic itself reads an image from an object only."""
        image = self._dspy.Image
        if declared is image and isinstance(value, str):
            return image(url=value)
        inner = typing.get_args(declared)
        if typing.get_origin(declared) is list and inner and isinstance(value, list):
            return [self._with_images(inner[0], item) for item in value]
        if image in inner and isinstance(value, str) and str not in inner:
            return image(url=value)
        return value

    def _is_readable(self, declared: Any) -> bool:
        try:
            self._type_adapter(declared)
        except Exception:  # noqa: BLE001  # pydantic has no schema for it: rows are left as they are
            return False
        return True


def _is_json(declared: Any) -> bool:
    origin = typing.get_origin(declared)
    if origin is None:
        return declared in _JSON_TYPES
    if origin is typing.Literal:
        return True
    return all(map(_is_json, typing.get_args(declared)))


def _takes_text(declared: Any) -> bool:
    """Return whether a text is a value of the type as it is."""
    is_union = typing.get_origin(declared) is typing.Union or type(declared).__name__ == "UnionType"
    return declared in _TEXT_TYPES or (is_union and str in typing.get_args(declared))
