"""The lint for words that must not come back finds them in names, prose and file names."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "words.py"


@pytest.fixture(scope="module")
def words() -> ModuleType:
    spec = importlib.util.spec_from_file_location("words_lint", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["words_lint"] = module
    spec.loader.exec_module(module)
    return module


def found(words: ModuleType, text: str, path: str = "package/module.py") -> list[tuple[int, str]]:
    listed = words.parse("# a comment\n\nfrog, frogs = amphibian\njump about = move\n! .frog(\n")
    return [(hit.line, hit.word) for hit in words.hits(path, text, listed)]


def test_a_word_is_found_inside_snake_case_and_camel_case_names(words: ModuleType) -> None:
    assert found(words, "old_frog = 1\nclass GreenFrogs: ...\nFROG_POND = 2\n") == [
        (1, "frog"),
        (2, "frogs"),
        (3, "frog"),
    ]


def test_a_longer_word_that_contains_a_listed_one_is_not_found(words: ModuleType) -> None:
    assert found(words, "frogman = leapfrog\n") == []


def test_a_phrase_is_found_across_the_end_of_a_comment_line(words: ModuleType) -> None:
    assert found(words, "x = 1\n# They jump\n    # about.\n") == [(2, "jump about")]


def test_a_permitted_text_is_not_searched(words: ModuleType) -> None:
    assert found(words, "file.frog(0)\n") == []


def test_a_file_name_is_searched_too(words: ModuleType) -> None:
    assert found(words, "", path="tests/test_green_frog.py") == [(0, "frog")]


def test_no_listed_word_appears_in_a_replacement(words: ModuleType) -> None:
    """What the lint recommends must pass the lint."""
    listed = words.words()
    own = {name: words.parse(f"{name} = x").pattern for name in listed.replacements}
    assert [
        (word, name)
        for word, replacement in listed.replacements.items()
        for name, pattern in own.items()
        if not replacement.startswith("`") and pattern.search(replacement.split(";")[0].lower())
    ] == []
