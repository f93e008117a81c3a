"""The directive `command-reference`: the help of a program and of each of its commands, as they print it."""

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout, suppress
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

WIDTH = "100"
ISOLATED = ("serve",)
"""The command that starts its process again, isolated, so that it prints its help as a process of its own."""


class CommandReference(SphinxDirective):
    """`:::{command-reference} evolverpc`; the program is one of this environment."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a section with a literal block for each command."""
        return self.parse_text_to_nodes(markdown(self.arguments[0]), allow_section_headings=True)


@cache
def markdown(program: str) -> str:
    """Return the help of a program and of its commands, a section each."""
    sections = [f"### `{title}`\n\n```text\n{text}\n```" for title, text in helps(program).items()]
    return "\n\n".join(sections)


@cache
def helps(program: str) -> dict[str, str]:
    """Return what `--help` prints, by `program` and `program command`; with all flags, if some are rarely used."""
    own = _printed(program, "--help")
    return {program: own} | {title: text for name in _commands(own) for title, text in _helps_of(program, name).items()}


def _helps_of(program: str, *words: str) -> dict[str, str]:
    """Return the help of a command, and of the commands that it has."""
    if words == ISOLATED:
        return {" ".join((program, *words)): _printed(program, *words, "--help-all")}
    printed = _full_help(program, *words)
    found = {" ".join((program, *words)): printed}
    for name in _commands(printed):
        found |= _helps_of(program, *words, name)
    return found


def _commands(printed: str) -> list[str]:
    return re.findall(r"^  ([a-z-]+)  ", printed.partition("\nCommands:\n")[2], re.MULTILINE)


def _printed(program: str, *words: str) -> str:
    """Return the help of a program, run as users run it."""
    command = (str(Path(sys.executable).with_name(program)), *words)
    environment = {**os.environ, "COLUMNS": WIDTH}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603


def _full_help(program: str, *words: str) -> str:
    printed = _printed_here(program, *words, "--help")
    return _printed_here(program, *words, "--help-all") if "--help-all" in printed else printed


def _printed_here(program: str, *words: str) -> str:
    """Return the help of one of its commands, run in this process: a process each takes half a second."""
    [script] = entry_points(group="console_scripts", name=program)
    given, columns, printed = sys.argv, os.environ.get("COLUMNS"), io.StringIO()
    sys.argv, os.environ["COLUMNS"] = [program, *words], WIDTH
    try:
        with redirect_stdout(printed), suppress(SystemExit):
            script.load()()
    finally:
        sys.argv = given
        os.environ.pop("COLUMNS") if columns is None else os.environ.update(COLUMNS=columns)
    return printed.getvalue().strip()


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-reference", CommandReference)
    return {"parallel_read_safe": True}
