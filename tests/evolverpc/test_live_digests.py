"""Digests of live programs: a change of what the functions use is found, and nothing else is."""

from typing import Any

import pytest

from evolverpc.live_program import live_digests
from tests.support.notebook_cells import run_cell

CELL = """
import functools, json
LIMIT = 3
LABELS = ("a", "b")
calls = 0
cache = {}

def helper(text, *, least=LIMIT): return deeper(text) + LIMIT
def deeper(text): return len(text)
def unused(): return 1

class Judge:
    weight = 2
    def grade(self, output): return strict(output) * self.weight
def strict(output): return output in {"x", "y", "z"}
judge = Judge()

@functools.lru_cache
def kept(text): return 5

def wrapped(function):
    @functools.wraps(function)
    def inner(*arguments): return function(*arguments)
    return inner

def run(example, candidate):
    global calls
    calls += 1
    cache[example] = [helper(each) for each in (json.dumps(example), kept("a"))]
    return cache[example]

@wrapped
def score(example, output, limit=LIMIT): return judge.grade(output) if output in LABELS else (lambda: last())()
def last(): return {"p", "q", "r"}
"""


def digests(cell: str = CELL, parts: tuple[str, ...] = ("run", "score")) -> dict[str, str]:
    """Of the functions as a cell of a notebook defines them."""
    names: dict[str, Any] = {"__name__": "cell"}
    run_cell(cell, names)
    return live_digests({name: names[name] for name in parts})


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("calls += 1", "calls += 2", {"function run"}),
        ("+ LIMIT", "- LIMIT", {"function helper"}),
        ("LIMIT = 3", "LIMIT = 4", {"value LIMIT", "value score, default 0", "value helper, default 0"}),
        ('("a", "b")', '("a", "c")', {"value LABELS"}),
        ('("a", "b")', '["a", "c"]', {"value LABELS", "data LABELS"}),
        ("weight = 2", "weight = 3", {"value Judge.weight"}),
        ('{"x", "y", "z"}', '{"x", "y"}', {"function strict"}),
        ("return 5", "return 6", {"function kept"}),
        ('{"p", "q", "r"}', "set()", {"function last"}),
        ("return 1", "return 2", set()),
        ("calls = 0", "calls = 7", set()),
        ("cache = {}", "cache = {1: 2}", {"data cache"}),
    ],
)
def test_a_change_of_what_the_functions_use_is_found_by_its_name(before: str, after: str, changed: set[str]) -> None:
    assert before in CELL
    first, second = digests(), digests(CELL.replace(before, after))
    assert first == digests(), "the same functions have the same digests"
    assert {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)} == changed


def test_a_method_brings_the_other_methods_of_its_class() -> None:
    cell = "class Program:\n def run(self, e, c): return self.own()\n def own(self): return 1\nrun = Program().run\n"
    assert digests(cell, ("run",)) != digests(cell.replace("1", "2"), ("run",))
