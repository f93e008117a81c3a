"""The outline of a commit's code for a model: bounded, of the program's folder alone, for any content."""

from pathlib import Path

import pytest

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
/** Answers tickets. */

import { Base } from "./base.js";

export interface Ticket<T> { text: T }
export type Team = "a" | "b";
/**
 * Sorts tickets.
 * It has no state.
 */
@Injectable()
export abstract class Sorter<T> extends Base<T> implements Other {
  static count = 0;
  /** Sort one. */
  async sort(
    ticket: Ticket<T>,
    { strict = false } = {},
  ): Promise<Team> { return "a"; }
  #hidden = (): void => {};
}

// Asks a model.
export const ask = async (question: string): Promise<string> => question;
export const limit = 3;
function helper(a) { return a; }
/** What is optimized. */
export const program = defineProgram({
  name: "tickets",
  // Runs one.
  run: async (row: Row, { words }) => ask(words),
  score({ label }, output) { return { better: () => 1 }; },
});
await serve({ program, nested: { stop: () => {} } }, 3);
app.get("/", () => { const inner = { f: () => 1 }; });
export default function (a: string): void {}
"""

OUTLINE = """\
    // Answers tickets.
    export interface Ticket<T>
    export type Team
    export abstract class Sorter<T> extends Base<T> implements Other  // Sorts tickets.
        async sort( ticket: Ticket<T>, { strict = false } = {}, ): Promise<Team>  // Sort one.
        #hidden = (): void
    export const ask = async (question: string): Promise<string>  // Asks a model.
    function helper(a)
    export const program = defineProgram  // What is optimized.
        run: async (row: Row, { words })  // Runs one.
        score({ label }, output)
    await serve
        nested:
            stop: ()
    export default function (a: string): void
"""


@pytest.mark.parametrize("suffix", [".ts", ".tsx"])
def test_typescript_and_javascript_have_their_definitions(tmp_path: Path, suffix: str) -> None:
    jsx = "export const Page = ({ team }: Props) => <b>{team}</b>;\n" if suffix == ".tsx" else ""
    shown = "    export const Page = ({ team }: Props)\n" if jsx else ""
    project = Project(tmp_path, {f"app{suffix}": TYPESCRIPT + jsx, "z.txt": ""})
    outline = outline_of(UserRepository(project.folder), project.first)
    lines = len((TYPESCRIPT + jsx).splitlines())
    assert outline == f"Files (2):\napp{suffix} ({lines} lines)\n{OUTLINE}{shown}z.txt (0 lines)\n"


@pytest.mark.parametrize(
    "content",
    ["export class {{{", "}" * 9, "(" * 100_000, "f({a:" * 9000, "\ud800", "export const f = (x: " + "a" * 999],
)
def test_typescript_that_cannot_be_parsed_is_outlined_as_far_as_it_goes(tmp_path: Path, content: str) -> None:
    files: dict[str, str | bytes] = {"a.ts": content.encode("utf-8", "surrogatepass"), "b.ts": "export class B {}"}
    project = Project(tmp_path, files)
    outline = outline_of(UserRepository(project.folder), project.first)
    assert "b.ts (1 lines)\n    export class B\n" in outline
    assert len(outline) < 1000


def test_files_have_their_size_and_definitions_and_notes_come_last(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "sub/app.py": MODULE,
        "sub/x.ts": "// What it is for.\nlet x\n",
        "sub/blob.bin": b"\0\1",
        "sub/broken.py": "def (\n",
        "sub/deep.py": "x = " + "(" * 5000 + ")" * 5000,
        "sub/AGENTS.md": "Be brief.\n",
        "outside.py": "",
    }
    project = Project(tmp_path, files)
    messages = outline_of(UserRepository(project.folder / "sub"), project.first)
    assert messages.startswith("Files (6):\n")
    assert (
        'sub/app.py (9 lines)\n    """Sorts tickets."""\n    class Sorter(Base)\n'
        "        def sort(self, ticket, *, strict=False)\n    async def ask(question: str)\n"
    ) in messages
    assert "sub/x.ts (2 lines)\n    // What it is for.\n" in messages
    assert "sub/blob.bin (binary, 2 bytes)\n" in messages
    assert messages.count("(no Python: ") == 2
    assert messages.endswith("\nAGENTS.md:\nBe brief.\n")
    assert "outside" not in messages


def test_it_is_bounded_however_much_there_is(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"{number}{'x' * 200}.py": "def f(): ...\n" for number in range(300)}
    project = Project(tmp_path, {**files, "README.md": "words " * 10_000})
    messages = outline_of(UserRepository(project.folder), project.first)
    assert "README.md:\nwords" in messages
    assert "(more files than fit here)" in messages
    assert MAX_NOTES < len(messages) <= MAX_CHARACTERS + 100
