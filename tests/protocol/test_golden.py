"""Every wire type has valid and invalid examples; models and JSON Schema agree on each of them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

import protocol
from protocol import base, discovery, evaluation, lifecycle, mutation, reflection
from protocol.methods import CONTRACT_FILE, RpcDiscoverParams

EXAMPLES = Path(protocol.__file__).parent / "examples"
COMPONENTS: dict[str, Any] = json.loads(CONTRACT_FILE.read_text(encoding="utf-8"))["components"]
TYPES = COMPONENTS["schemas"]
MODELS: dict[str, type[BaseModel]] = {
    kind.__name__: kind
    for place in (base, discovery, evaluation, lifecycle, mutation, reflection)
    for kind in vars(place).values()
    if isinstance(kind, type) and issubclass(kind, BaseModel)
} | {"RpcDiscoverParams": RpcDiscoverParams}


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"components": COMPONENTS, "$ref": f"#/components/schemas/{name}"})


def model_accepts(name: str, value: Any) -> bool:
    try:
        MODELS[name].model_validate(value)
    except ValidationError:
        return False
    return True


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(TYPES))
def test_models_and_schema_agree_with_the_file_names(name: str) -> None:
    for path in (EXAMPLES / name).glob("*.json"):
        expected = path.name.startswith("valid-")
        value = load(path)
        assert model_accepts(name, value) is expected, path
        assert validator(name).is_valid(value) is expected, path


@pytest.mark.parametrize("name", sorted(TYPES))
def test_every_wire_type_has_several_valid_and_several_invalid_examples(name: str) -> None:
    names = [path.name for path in (EXAMPLES / name).glob("*.json")]
    assert sum(file.startswith("valid-") for file in names) >= 2
    assert sum(file.startswith("invalid-") for file in names) >= 2
    assert all(file.startswith(("valid-", "invalid-")) for file in names)


@pytest.mark.parametrize("name", sorted(TYPES))
def test_valid_examples_come_back_the_same_from_a_round_trip(name: str) -> None:
    kind = MODELS[name]
    for path in (EXAMPLES / name).glob("valid-*.json"):
        value = load(path)
        again = json.loads(kind.model_validate(value).model_dump_json(by_alias=True, exclude_unset=True))
        if issubclass(kind, base.ResultModel):
            value = {key: entry for key, entry in value.items() if key in kind.model_fields}
        assert again == value, path


@pytest.mark.parametrize("name", sorted(TYPES))
def test_models_and_schema_refuse_unknown_fields_of_requests_and_ignore_those_of_results(name: str) -> None:
    for path in (EXAMPLES / name).glob("valid-*.json"):
        value = load(path) | {"a_field_of_a_later_day": {"x": [1]}}
        expected = not issubclass(MODELS[name], base.RequestModel)
        assert model_accepts(name, value) is expected
        assert validator(name).is_valid(value) is expected
