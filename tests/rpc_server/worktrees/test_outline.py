"""The outline of a commit's code for a model: bounded, of the program's folder alone, for any content."""

from pathlib import Path

from rpc_server.worktrees.outline import MAX_CHARACTERS, MAX_NOTES, outline_of
from rpc_server.worktrees.repository import UserRepository
from tests.rpc_server.mutations.project import Project

MODULE = '''"""Sorts tickets."""
import re

class Sorter(Base):
    def sort(self, ticket, *, strict=False):
        return re.match("\\d", ticket)

async def ask(question: str) -> str:
    return "x"
'''

TYPESCRIPT = """#!/usr/bin/env node
/**
 * Answers tickets.
 */

import { Base } from "./base.js";

export interface Ticket<T> { text: T }
export abstract class Sorter<T> extends Base<T> implements Other {
  static count = 0;
  async sort(ticket: Ticket<T>, { strict = false } = {}): Promise<Team> {
    if (strict) {
      return ask("a");
    }
  }
}

export const ask = async (question: string): Promise<string> => question;
export const limit = 3;
export const program = defineProgram({
  run: async (row: Row, { words }) => ask(words),
  score({ label }, output) {
    return 1;
  },
});
await serve({ program }, 3);
"""

OUTLINE = """\
     * Answers tickets.
    export interface Ticket<T> { text: T }
    export abstract class Sorter<T> extends Base<T> implements Other {
      async sort(ticket: Ticket<T>, { strict = false } = {}): Promise<Team> {
    export const ask = async (question: string): Promise<string> => question;
      run: async (row: Row, { words }) => ask(words),
      score({ label }, output) {
"""


def test_files_in_typescript_have_the_lines_that_begin_definitions(tmp_path: Path) -> None:
    project = Project(tmp_path, {"app.ts": TYPESCRIPT, "z.txt": ""})
    outline = outline_of(UserRepository(project.folder), project.first)
    assert outline == f"Files (2):\napp.ts ({len(TYPESCRIPT.splitlines())} lines)\n{OUTLINE}z.txt (0 lines)\n"


def test_files_have_their_size_and_definitions_and_notes_come_last(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "sub/app.py": MODULE,
        "sub/x.ts": "// What it is for.\nlet x\n",
        "sub/blob.bin": b"\0\1",
        "sub/broken.py": b"def f(\xff" + b"(" * 5000,
        "sub/AGENTS.md": "Be brief.\n",
        "outside.py": "",
        "shared/package.json": "{}",
    }
    project = Project(tmp_path, files)
    messages = outline_of(UserRepository(project.folder / "sub"), project.first)
    assert messages.startswith("Files (6):\n")
    assert (
        'sub/app.py (9 lines)\n    """Sorts tickets."""\n    class Sorter(Base):\n'
        "        def sort(self, ticket, *, strict=False):\n    async def ask(question: str) -> str:\n"
    ) in messages
    assert "sub/x.ts (2 lines)\n    // What it is for.\n" in messages
    assert "sub/blob.bin (binary, 2 bytes)\n" in messages
    assert "sub/broken.py (1 lines)\n    def f(\ufffd((" in messages
    assert messages.endswith("\nAGENTS.md:\nBe brief.\n")
    assert "outside" not in messages


def test_it_is_bounded_however_much_there_is(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"{number}{'x' * 200}.py": "def f(): ...\n" for number in range(300)}
    project = Project(tmp_path, {**files, "README.md": "words " * 10_000})
    messages = outline_of(UserRepository(project.folder), project.first)
    assert "README.md:\nwords" in messages
    assert "(more files than fit here)" in messages
    assert MAX_NOTES < len(messages) <= MAX_CHARACTERS + 100
