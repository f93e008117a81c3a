"""The Markdown pages of the repository and the code blocks in them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = ("docs/benchmarks.md",)
PAGES = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"),
    *(
        "skills/evolverpc/SKILL.md",
        "clients/typescript/README.md",
        "clients/service-typescript/README.md",
        "deploy/README.md",
    ),
    *sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "examples").glob("**/README.md")
        if "node_modules" not in path.parts
    ),
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
)
CODE = ("python", "ts", "js", "sh", "console", "go", "perl", "toml", "sql")
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of code. `key` names it: the page and the block's first line."""

    page: str
    language: str
    text: str

    @property
    def key(self) -> str:
        return f"{self.page}: {self.text.strip().splitlines()[0].strip()}"

    def commands(self) -> list[str]:
        """Return the command lines of a shell block, without prompts, comments and continuations."""
        lines = re.sub(r"\\\n\s*", "", self.text).splitlines()
        if self.language == "console":
            lines = [line.strip()[2:] for line in lines if line.strip().startswith("$ ")]
        found = [re.sub(r"\s+#\s.*$", "", line).strip() for line in lines]
        return [part.strip() for line in found if line and not line.startswith("#") for part in line.split(" && ")]


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """Return the blocks of code of a page, without indentation."""
    found = []
    for indent, language, body in FENCE.findall(text(page)):
        if language in CODE:
            lines = [line.removeprefix(indent) for line in body.splitlines(keepends=True)]
            found.append(Block(page, language, "".join(lines)))
    return found


def block(page: str, first_line: str) -> Block:
    """Return the block of a page that begins so."""
    return next(found for found in blocks(page) if found.text.startswith(first_line))
