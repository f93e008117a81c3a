"""Pages: every block of code is run or has a reason, every flag exists, every link leads somewhere."""

import re
import shlex
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.docs import pages, snippets

sys.path.insert(0, str(pages.ROOT / "docs" / "_ext"))
import command_reference

COMMAND = re.compile(
    r"\b(evolverpc steer [a-z-]+|evolverpc service (?:keys|backup|secrets|tenants) [a-z-]+|evolverpc service [a-z]+"
    r"|evolverpc [a-z][a-z-]*)(?= |$)"
)
OTHER_TOOLS = {
    "--help",
    "--help-all",
    "--version",
    "--no-deps",
    "--save-dev",
    "--stdio",
    "--detach",
    "--conformance",
    "--wheel",
    "--keep",
    "--oplog",
}
"""Flags of npm, MongoDB, Modal, the demos, `evolverpc-conformance` and the like, in running text."""


@cache
def flags(command: str) -> set[str]:
    printed = re.sub(r"--\[no-\]([a-z-]+)", r"--\1 --no-\1", command_reference.helps(command.split()[0])[command])
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", printed))


def test_every_block_of_code_is_run_by_a_test_or_listed_with_the_reason() -> None:
    there = {block.key for page in pages.PAGES if page not in pages.GENERATED for block in pages.blocks(page)}
    run = {key for keys in snippets.RUN.values() if isinstance(keys, list) for key in keys}
    whole = tuple(keys.removesuffix("*") for keys in snippets.RUN.values() if isinstance(keys, str))
    listed = run | set(snippets.NOT_RUN)
    assert {key for key in there if not key.startswith(whole)} - listed == set(), "neither run nor listed"
    assert listed - there == set(), "listed, but in no page"
    assert all((pages.ROOT / test).is_file() for test in snippets.RUN)


def test_every_command_in_a_page_exists_and_has_the_flags_given_to_it() -> None:
    shells = [block for page in pages.PAGES for block in pages.blocks(page) if block.language in ("sh", "console")]
    for line in [line for block in shells for line in block.commands()]:
        found = COMMAND.search(line)
        if found is None:
            continue
        words = shlex.split(line[found.end() :].replace("(cat", "").replace(")", ""))
        if "--command" in words:
            words = words[: words.index("--command") + 1]
        given = {word.split("=")[0] for word in words if word.startswith("--")}
        assert given <= flags(found[1]), f"{line}: {found[1]} has no {given - flags(found[1])}"


@pytest.mark.parametrize("page", [page for page in pages.PAGES if page.startswith(("README", "docs/guides", "docs/q"))])
def test_every_flag_in_the_text_of_a_guide_is_one_of_a_command(page: str) -> None:
    programs = ("evolverpc",)
    known = set().union(*(flags(name) for program in programs for name in command_reference.helps(program)))
    given = {
        flag for code in re.findall(r"`([^`\n]+)`", pages.text(page)) for flag in re.findall(r"--[a-z][a-z-]+", code)
    }
    assert given - known - OTHER_TOOLS == set()


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages.PAGES)
def test_every_relative_link_of_a_page_leads_to_a_file_and_a_heading(page: str) -> None:
    prose = re.sub(r"`[^`\n]*`", "", pages.FENCE.sub("", pages.text(page)))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (pages.ROOT / page).parent / name if name else pages.ROOT / page
        assert path.exists(), f"{page} links to {target}"
        assert not anchor or anchor in anchors(path), f"{page} links to {target}, which has no such heading"


def test_no_page_installs_the_packages_from_an_index_where_they_are_not() -> None:
    for page in pages.PAGES:
        for line in pages.text(page).splitlines():
            assert not re.search(r"\b(pip|npm|npx|uv)\b[^`]* install\b[^`]*(?<![\w/.])evolverpc\b(?!/)", line), (
                f"{page}: {line}"
            )


def test_every_test_that_the_page_of_the_tests_names_exists() -> None:
    folder = pages.ROOT
    for name, word in re.findall(r"`([\w/.-]*(?:\btest[_.][\w.-]+|/))(?: -k (\w+))?", pages.text("tests/README.md")):
        tops = (pages.ROOT / "tests", pages.ROOT) if "/" in name else (folder,)
        path = next((top / name for top in tops if (top / name).exists()), None)
        if path is not None:
            folder = path if path.is_dir() else path.parent
        assert path is not None or name.endswith("/"), f"{name} is not in {folder}"
        assert not word or re.search(rf"\bdef test_\w*{word}", (path or folder).read_text()), f"{name} -k {word}"
