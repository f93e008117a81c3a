"""The cases are well formed, and come each from a section of the implementers' document."""

import re
from pathlib import Path

from gepa_client.conformance import CaseStep, load_checks
from gepa_client.conformance.cases import DEEP, FLAT, GENERATORS
from protocol import CAPABILITIES, METHODS

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = (ROOT / "protocol" / "conformance" / "README.md").read_text(encoding="utf-8")


def steps_of(steps: list[CaseStep]) -> list[CaseStep]:
    return [inner for step in steps for inner in (step, *steps_of(step.parallel or []))]


STEPS = [step for check in load_checks() for step in steps_of(check.steps)]


def test_every_capability_is_checked_where_it_is_offered() -> None:
    checked = {name for check in load_checks() for name in check.requires}
    assert CAPABILITIES.keys() - checked == {"untyped_rows"}  # what a program does with such rows is its own


def test_every_method_of_the_contract_is_called() -> None:
    assert METHODS.keys() <= {step.call for step in STEPS}


def test_checks_come_from_sections_of_the_document() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^#+ (.+)$", page, re.MULTILINE))
    assert {check.section for check in load_checks()} <= headings


def test_the_checks_that_only_warn_are_listed() -> None:
    listed = re.findall(r"^- `(.+?)`: (.+)$", LANGUAGE.partition("## SHOULD")[2], re.MULTILINE)
    assert listed == [(check.id, check.title) for check in load_checks() if check.level == "should"]


def test_the_language_is_documented() -> None:
    names = (*DEEP, *FLAT, *GENERATORS)
    assert [name for name in names if f'"{name}"' not in LANGUAGE and f"`{name}`" not in LANGUAGE] == []
