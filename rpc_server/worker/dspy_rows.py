"""Rows as `dspy.Example` users have them: JSON values become objects of the types that the signatures declare."""

from __future__ import annotations

import typing
from typing import Any

from .failures import InvalidResult

_JSON_TYPES = (str, int, float, bool, type(None), list, dict, Any, object)


class RowTypes:
    """Converts the fields of rows that a predictor's signature declares with a type JSON does not have.

    `dspy.History`, `dspy.Image` (a URL or data URI, or `{"url": ...}`), pydantic models, dates, enums and the like,
    also inside lists and optional types. A field that two predictors declare with different types stays as it is.
    """

    def __init__(self, predictors: typing.Iterable[Any], *, adapter: Any, invalid: type[Exception], image: Any) -> None:
        """`adapter`, `invalid`: pydantic's `TypeAdapter` and `ValidationError`. `image`: `dspy.Image`."""
        self._adapter = adapter
        self._invalid = invalid
        self._image = image
        self._types: dict[str, Any] = {}
        declared: dict[str, list[Any]] = {}
        for predictor in predictors:
            for name, field in predictor.signature.fields.items():
                declared.setdefault(name, []).append(field.annotation)
        for name, (first, *others) in declared.items():
            if all(other == first for other in others) and not _is_json(first) and self._is_readable(first):
                self._types[name] = first

    def convert(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with its typed fields converted.

        Raises:
            InvalidResult: a value does not fit its type; the message names the field.
        """
        return {name: self._converted(name, value) if name in self._types else value for name, value in row.items()}

    def _converted(self, name: str, value: Any) -> Any:
        declared = self._types[name]
        try:
            return self._adapter(declared).validate_python(self._with_images(declared, value))
        except self._invalid as problem:
            message = "the row's field %r is not a %s: %s" % (name, getattr(declared, "__name__", declared), problem)
            raise InvalidResult(message) from None

    def _with_images(self, declared: Any, value: Any) -> Any:
        """Texts as the images that they name; pydantic itself reads an image from an object only."""
        if declared is self._image and isinstance(value, str):
            return self._image(url=value)
        inner = typing.get_args(declared)
        if typing.get_origin(declared) is list and inner and isinstance(value, list):
            return [self._with_images(inner[0], item) for item in value]
        if self._image in inner and isinstance(value, str) and str not in inner:
            return self._image(url=value)
        return value

    def _is_readable(self, declared: Any) -> bool:
        try:
            self._adapter(declared)
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
