"""Globs, and links that stay inside, judged by their paths alone."""

import shlex
from typing import Any

import pytest

from evolverpc_common.settings.sources import SettingsError
from protocol.errors import MutationRejected
from rpc_server.mutations.file_rules import Globs, Rules, link_fault, protected_globs
from rpc_server.settings import Settings
from rpc_server.worktrees.staged_change import ChangedFile

MEANT = [
    ("**", "a.py a/b/c .x", ""),
    ("src", "src src/a src/a/b", "srcs a/src src.py"),
    ("/src/**", "src/a src/a/b", "x/src/a"),
    ("src/*.py", "src/a.py src/.py", "src/a.pyc src/b/a.py a.py"),
    ("**/*.py", "a.py src/a.py src/b/a.py", "a.pyc src/py"),
    ("src/**/test", "src/test src/a/test src/a/b/test src/test/x", "test src/atest"),
    ("a?c", "abc a-c", "ac abbc a/c"),
    ("[ab].py", "a.py b.py", "c.py ab.py"),
    ("[!ab].py", "c.py", "a.py b.py /.py"),
    ("[]]", "]", "["),
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


def test_a_glob_that_matches_nothing_is_a_fault_of_the_settings() -> None:
    settings = Settings(program="app.py", allow_mutations=True, deny=("src/[z-a].py",))
    with pytest.raises(SettingsError, match="z-a"):
        Rules.of(settings, "")


JUDGES = {
    "python -m pytest -q": "tests/test_a.py src/tests/x test_app.py conftest.py tox.ini src/deep/app_test.py",
    "node --test dist/": "app.test.ts web/app.spec.js __tests__/a.js vitest.config.ts",
    "sh checks/run.sh": "checks/run.sh",
    "./verify": "verify",
    "npm test": "package.json",
    "sh -c 'python tools/lint.py && make -s test'": "tools/lint.py Makefile sub/Makefile",
    """sh -c "grep -q 'a;b' x.log; python tools/lint.py" """: "tools/lint.py",
    'sh -c "python tools/lint.py>/dev/null"': "tools/lint.py",
    """sh -c 'python "a;b.py"'""": "a;b.py b.py",
    "env A=1 bash scripts/ci": "scripts/ci",
}
FREE = "app.py src/testing.py notes/latest.txt contest.py web/attest/x pyproject.toml dist/x src/app.ts"


@pytest.mark.parametrize("command", JUDGES)
def test_tests_and_what_runs_them_may_not_change_unless_that_is_allowed(command: str) -> None:
    given = {"program": "app.py", "allow_mutations": True, "check_command": shlex.split(command)}
    protected = Globs(protected_globs(Settings(**given), ""))
    assert [path for path in JUDGES[command].split() if protected.matching(path) is None] == []
    assert [path for path in FREE.split() if protected.matching(path) is not None] == []
    assert protected_globs(Settings(**given, allow_tests=True), "") == ()
    below = Globs(protected_globs(Settings(**given), "py"))
    assert [path for path in JUDGES[command].split() if below.matching(f"py/{path}") is None] == []


@pytest.mark.parametrize("path", ["py/checks/run.sh", "tests/test_app.py", "py/data[1]/x", ".GITMODULES"])
def test_what_a_check_runs_or_a_link_replaces_below_the_root_may_not_change(path: str) -> None:
    given: dict[str, Any] = {"check_command": ("sh", "checks/run.sh"), "links": ("data[1]",), "allow": ("**",)}
    rules = Rules.of(Settings(program="app.py", allow_mutations=True, **given), "py")
    with pytest.raises(MutationRejected):
        rules.check([ChangedFile(path, "100644", "100644", 2, 2)])


def test_the_program_itself_may_change_though_the_check_runs_it() -> None:
    settings = Settings(program="app.py", allow_mutations=True, check_command=("python", "app.py", "tests/x"))
    assert Globs(protected_globs(settings, "")).matching("app.py") is None


LINKS = [
    ("a", "b", True),
    ("a/b", "./.././c/", True),
    ("deep/er/one", "../..", True),
    ("a/b", "../../c", False),
    ("a", "/x", False),
    ("a", "", False),
    ("a", "b/../../x", False),
    ("two", "deep/er/one/../x", False),
    ("a", "x/.GIT/y", False),
]


@pytest.mark.parametrize(("path", "target", "stays"), LINKS)
def test_a_link_stays_in_the_tree_also_through_others(path: str, target: str, stays: bool) -> None:
    assert (link_fault(path, target) is None) is stays
