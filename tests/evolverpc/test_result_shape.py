"""The results of Python's and TypeScript's `optimize` have the same fields, in the spelling of their language."""

import dataclasses
import re
from pathlib import Path

import pytest

import evolverpc
from evolverpc.result import FILES

SOURCE = Path(__file__).parents[2] / "clients/typescript/src/optimize/optimize-result.ts"


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def interface(name: str) -> str:
    found = re.search(rf"^export interface {name}<.*?> \{{\n(.*?)^\}}", SOURCE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    ("python", "typescript"), [(evolverpc.Result, "OptimizeResult"), (evolverpc.KeptCandidate, "KeptCandidate")]
)
def test_both_results_have_the_same_fields(python: type, typescript: str) -> None:
    fields = {camel_case(each.name) for each in dataclasses.fields(python)}
    assert fields == set(re.findall(r"^  (\w+):", interface(typescript), re.MULTILINE))


def test_both_results_name_the_same_files() -> None:
    [files] = re.findall(r"files: \{(.*?)\}", interface("OptimizeResult"), re.DOTALL)
    assert set(map(camel_case, FILES)) == set(re.findall(r"(\w+): string", files))
