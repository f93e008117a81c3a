"""Rows of a DSPy program as `dspy.Example`s: objects of the caller, JSON, or texts of a file without types."""

from __future__ import annotations

import importlib
import typing
from typing import Any, Mapping, Sequence

from .dspy_student import Student
from .errors import InvalidResult

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
