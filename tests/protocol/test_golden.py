"""Every wire type has valid and invalid examples; models and JSON Schema agree on each of them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

import protocol
from protocol import Meta, base, discovery, evaluation, mutation
from protocol.generate import wire_types
from protocol.methods import SCHEMA_DIR, SCHEMA_FILE, RpcDiscoverParams

EXAMPLES = Path(protocol.__file__).parent / "examples"
FILES = sorted(EXAMPLES.glob("*/*.json"))
SCHEMA: dict[str, Any] = json.loads((SCHEMA_DIR / SCHEMA_FILE).read_text(encoding="utf-8"))
MODELS: dict[str, type[BaseModel]] = {
    kind.__name__: kind
    for place in (protocol, base, mutation)
    for kind in vars(place).values()
    if isinstance(kind, type) and issubclass(kind, BaseModel)
} | {"RpcDiscoverParams": RpcDiscoverParams}


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$defs": SCHEMA["$defs"], "$ref": f"#/$defs/{name}"})


def model_accepts(name: str, value: Any) -> bool:
    try:
        MODELS[name].model_validate(value)
    except ValidationError:
        return False
    return True


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_models_and_schema_agree_with_the_file_name(path: Path) -> None:
    expected = path.name.startswith("valid-")
    value = load(path)
    assert model_accepts(path.parent.name, value) is expected
    assert validator(path.parent.name).is_valid(value) is expected


@pytest.mark.parametrize("name", sorted(SCHEMA["$defs"]))
def test_every_wire_type_has_several_valid_and_several_invalid_examples(name: str) -> None:
    names = [path.name for path in (EXAMPLES / name).glob("*.json")]
    assert sum(file.startswith("valid-") for file in names) >= 2
    assert sum(file.startswith("invalid-") for file in names) >= 2
    assert all(file.startswith(("valid-", "invalid-")) for file in names)


def test_every_folder_of_examples_is_a_wire_type() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == set(SCHEMA["$defs"])


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.name.startswith("valid-")],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_a_valid_example_comes_back_the_same_from_a_round_trip(path: Path) -> None:
    value = load(path)
    model = MODELS[path.parent.name].model_validate(value)
    again = json.loads(model.model_dump_json(by_alias=True, exclude_unset=True))
    known = value
    if issubclass(type(model), base.ResultModel):
        known = {key: entry for key, entry in value.items() if key in type(model).model_fields}
    assert again == known


def wire_kinds(below: type[BaseModel]) -> list[type[BaseModel]]:
    return [MODELS[name] for name in sorted(SCHEMA["$defs"]) if issubclass(MODELS[name], below)]


@pytest.mark.parametrize("kind", wire_kinds(base.RequestModel), ids=lambda kind: kind.__name__)
def test_request_models_refuse_unknown_fields_and_so_does_their_schema(kind: type[BaseModel]) -> None:
    assert SCHEMA["$defs"][kind.__name__]["additionalProperties"] is False
    for path in (EXAMPLES / kind.__name__).glob("valid-*.json"):
        value = load(path) | {"definitely_not_a_field": 1}
        assert not model_accepts(kind.__name__, value)
        assert not validator(kind.__name__).is_valid(value)


@pytest.mark.parametrize("kind", wire_kinds(base.ResultModel), ids=lambda kind: kind.__name__)
def test_result_models_ignore_unknown_fields_and_so_does_their_schema(kind: type[BaseModel]) -> None:
    for path in (EXAMPLES / kind.__name__).glob("valid-*.json"):
        value = load(path) | {"a_field_of_a_later_day": {"x": [1]}}
        assert model_accepts(kind.__name__, value)
        assert validator(kind.__name__).is_valid(value)


def test_every_wire_type_is_a_request_a_result_or_meta() -> None:
    known = {*wire_kinds(base.RequestModel), *wire_kinds(base.ResultModel)}
    assert {MODELS[name] for name in SCHEMA["$defs"]} - known == {Meta}


def test_every_type_of_the_table_is_in_the_schema() -> None:
    assert {kind.__name__ for kind in wire_types()} <= set(SCHEMA["$defs"])


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (evaluation.ExampleResult, "score"),
        (evaluation.ExampleResult, "seconds"),
        (discovery.Limits, "example_timeout_s"),
    ],
    ids=["score", "seconds", "example_timeout_s"],
)
def test_numbers_json_cannot_write_are_refused_wherever_they_come_from(
    kind: type[BaseModel], field: str, text: str
) -> None:
    example = load(next(iter(sorted((EXAMPLES / kind.__name__).glob("valid-*.json")))))
    assert model_accepts(kind.__name__, example)
    assert not model_accepts(kind.__name__, example | {field: float(text)})
