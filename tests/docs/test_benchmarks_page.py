"""The page of the benchmarks is made from its figures, and states under which rule they were measured."""

from benchmarks.page import held, page
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")


def test_the_page_is_that_of_the_figures_it_holds_with_the_day_and_machine_of_each() -> None:
    found = held(PAGE)
    assert page(found) == PAGE
    for name, (machine, _) in found.items():
        section = PAGE.partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert f"Measured on {machine['date']}: cores {machine['cores']}, processor" in section, name
