"""Globs, and links that stay inside, told apart by the paths themselves."""

import pytest

from rpc_server.config import SettingsError
from rpc_server.mutation.globs import Globs
from rpc_server.mutation.links import leaving
from rpc_server.mutation.rules import Rules
from rpc_server.settings import Settings

MEANT = [
    ("**", "a.py a/b/c .x", ""),
    ("*", "a.py a/b .x", ""),
    ("src", "src src/a src/a/b", "srcs a/src src.py"),
    ("src/", "src/a src/a/b", "srcs/a"),
    ("/src/**", "src/a src/a/b", "x/src/a"),
    ("src/*", "src/a src/a/b", "src srcs/a"),
    ("src/*.py", "src/a.py src/.py", "src/a.pyc src/b/a.py a.py"),
    ("**/*.py", "a.py src/a.py src/b/a.py", "a.pyc src/py"),
    ("src/**/test", "src/test src/a/test src/a/b/test src/test/x", "test src/atest"),
    ("a?c", "abc a-c", "ac abbc a/c"),
    ("[ab].py", "a.py b.py", "c.py ab.py"),
    ("[!ab].py", "c.py", "a.py b.py /.py"),
    ("[a-c]", "b", "d -"),
    ("[]]", "]", "["),
    ("[", "[", "a"),
    ("a.b", "a.b", "aXb"),
    ("**a", "xa a", "x/a"),
    ("(a|b)+$", "(a|b)+$", "a aa"),
    ("Read*", "Readme", "README"),
    ("", "", "a a/b"),
]


@pytest.mark.parametrize(("glob", "meant", "others"), MEANT, ids=[glob for glob, _, _ in MEANT])
def test_a_glob_means_paths_from_the_top(glob: str, meant: str, others: str) -> None:
    globs = Globs([glob])
    assert [path for path in meant.split() if globs.matching(path) is None] == []
    assert [path for path in others.split() if globs.matching(path) is not None] == []


def test_the_glob_that_matched_is_told() -> None:
    assert Globs(["a", "b/*"]).matching("b/x") == "b/*"


def test_a_glob_that_cannot_be_read_is_a_fault_of_the_settings() -> None:
    settings = Settings(program="app.py", allow_mutations=True, allow=("[z-a]",))
    with pytest.raises(SettingsError, match="glob"):
        Rules.of(settings, "")


LINKS = [
    ({"a": "b"}, ""),
    ({"a/b": "../c"}, ""),
    ({"a/b": "../../c"}, "a/b"),
    ({"a": "/x"}, "a"),
    ({"a": ""}, "a"),
    ({"a": "b/../../x"}, "a"),
    ({"one": "two", "two": "..", "three": "one/x"}, "one two three"),
    ({"deep/er/one": "../..", "two": "deep/er/one/x"}, ""),
    ({"deep/er/one": "../..", "two": "deep/er/one/../x"}, "two"),
    ({"a": "a"}, "a"),
    ({"a": "b", "b": "c", "c": "a"}, "a b c"),
    ({"a": "x/.git/y"}, "a"),
    ({"a": ".gitignore"}, ""),
]


@pytest.mark.parametrize(("links", "bad"), LINKS, ids=[str(links) for links, _ in LINKS])
def test_a_link_stays_in_the_tree_also_through_others(links: dict[str, str], bad: str) -> None:
    assert set(leaving(links)) == set(bad.split())
