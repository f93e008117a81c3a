"""The table of methods and capabilities is complete, and what is generated from it agrees."""

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from protocol.base import WHOLE, RequestModel, ResultModel


def _integers(hint: Any) -> Iterator[tuple[Any, ...]]:
    """The metadata of each integer in a type."""
    base, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if base is int:
        yield tuple(metadata)
    for part in get_args(base):
        yield from _integers(part)


def _models(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield kind
    for part in kind.__subclasses__():
        yield from _models(part)


def test_every_integer_of_the_contract_may_be_written_as_a_float() -> None:
    models = [*_models(RequestModel), *_models(ResultModel)]
    fields = {
        (model.__name__, name): hint
        for model in models
        for name, hint in get_type_hints(model, include_extras=True).items()
        if name in model.model_fields
    }
    integers = {place: [*_integers(hint)] for place, hint in fields.items()}
    assert [place for place, found in integers.items() if any(WHOLE not in metadata for metadata in found)] == []
    assert ("Progress", "done") in integers
