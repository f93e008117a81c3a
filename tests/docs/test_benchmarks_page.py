"""The page of the benchmarks is made from its figures, and states under which rule they were measured."""

from benchmarks.page import SECTIONS, held
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")


def test_the_section_on_calibration_is_that_of_its_figures() -> None:
    figures, written = held(PAGE)["calibration"], SECTIONS["calibration"]
    assert written(figures).strip() in PAGE
    for error in (0.05, 0.04):
        needed = f"its verdict on sealed test rows, which needs p at most {error:g} (`aa_improved`)"
        assert needed in written(figures | {"error": error})
