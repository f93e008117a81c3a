"""Which files decide what the check of a mutation accepts: tests, their configuration, and the check's own script."""

import os
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence

TESTS = (
    *("**/tests", "**/test", "**/__tests__", "**/spec", "**/specs", "**/testdata", "**/__snapshots__"),
    *(
        "**/test_*.py",
        "**/*_test.py",
        "**/conftest.py",
        "**/pytest.ini",
        "**/.pytest.ini",
        "**/tox.ini",
        "**/noxfile.py",
    ),
    *("**/.coveragerc", "**/sitecustomize.py", "**/usercustomize.py"),
    *(
        "**/*.test.*",
        "**/*.spec.*",
        "**/jest.config.*",
        "**/vitest.config.*",
        "**/.mocharc.*",
        "**/playwright.config.*",
    ),
    *("**/*_test.go", "**/*_spec.rb"),
)
"""Globs of paths that hold or configure tests by the conventions of test runners."""

_RUN_FILES = {
    "make": ("**/Makefile", "**/makefile", "**/GNUmakefile"),
    "gmake": ("**/Makefile", "**/makefile", "**/GNUmakefile"),
    "just": ("**/justfile", "**/Justfile", "**/.justfile"),
    "task": ("**/Taskfile.yml", "**/Taskfile.yaml"),
    "rake": ("**/Rakefile",),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("**/package.json",)),
}
"""What a command reads its own commands from."""

_SHELLS = {"sh", "bash", "dash", "zsh", "ksh"}
_INTERPRETER = re.compile(
    r"(python[\d.]*|node|tsx|ruby|perl|deno|uv|poetry|npx|env|time|nice|timeout|sh|bash|dash|zsh|ksh)"
)
_SEPARATOR = re.compile(r"[;&|()]+")


def check_files(command: Sequence[str], *, program: str | None, prefix: str) -> tuple[str, ...]:
    """Globs, from the repository's top, of what decides whether `command` exits with 0.

    These are `TESTS`, the scripts that the command names, and the files from which `make`, `npm` and the like read
    their commands. `program`: the program's own file, which is none of them. `prefix` leads from the repository's top
    to the folder that the command runs in.
    """
    own = dict.fromkeys(word for part in _parts(command) for word in _of_one(part, program, prefix))
    return (*TESTS, *own)


def _parts(command: Sequence[str]) -> Iterator[Sequence[str]]:
    """The simple commands in a command line, those in a shell's `-c` too."""
    yield command
    if command and posixpath.basename(command[0]) in _SHELLS:
        for word in command[1:]:
            if " " in word or _SEPARATOR.search(word):
                yield from _split(word)


def _split(script: str) -> Iterator[Sequence[str]]:
    lexer = shlex.shlex(script.replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    part: list[str] = []
    try:
        for word in lexer:
            if _SEPARATOR.fullmatch(word):
                yield part
                part = []
            else:
                part.append(word)
    except ValueError:  # an open quotation mark: the shell will refuse it too
        return
    yield part


def _of_one(command: Sequence[str], program: str | None, prefix: str) -> Iterator[str]:
    for position, word in enumerate(command):
        name = posixpath.basename(word)
        if position == 0 and name in _RUN_FILES:
            yield from _RUN_FILES[name]
            return
        if word.startswith("-") or "=" in word:
            continue
        if _INTERPRETER.fullmatch(name):
            continue
        path = posixpath.normpath(posixpath.join(prefix, word))
        follows_interpreter = position == 0 or _INTERPRETER.fullmatch(posixpath.basename(command[position - 1]))
        is_script = "." in name or (os.sep in word and not word.endswith(os.sep) and follows_interpreter)
        if is_script and not path.startswith(("/", "..")) and word != program:
            yield re.sub(r"([*?\[])", r"[\1]", path)
        return
