"""Find the words of `scripts/words.txt`, which must not come back, in names, docstrings, messages, tests and pages.

`python scripts/words.py [PATH...]` lists every hit and fails if there is one; `--count [REVISION]` prints their number.
"""

import io
import re
import subprocess
import sys
import tarfile
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "scripts" / "words.txt"
TEXT = (
    ".py",
    ".ts",
    ".tsx",
    ".mts",
    ".mjs",
    ".js",
    ".md",
    ".toml",
    ".yml",
    ".yaml",
    ".jsonc",
    ".svg",
    ".css",
    ".html",
    "Makefile",
)
NOT_OURS = (
    "scripts/words",
    "clients/typescript/src/generated/",
    "clients/typescript/dist/",
    "clients/dashboard/src/generated/",
    "gepa_client/page/dist/",
    "gepa_service/api/page/dist/",
)
"""The list and this script, which hold the words, and what is generated from other sources."""
GAP = r"[\s#*/]+"
"""Between the words of a phrase: blanks, and the end of a line with what begins the next line of a comment."""


@dataclass(frozen=True, slots=True)
class Words:
    """The list: one pattern for all words, their replacements, and the texts that are not searched."""

    pattern: re.Pattern[str]
    replacements: dict[str, str]
    permitted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """One occurrence; `line` 0 is the file's name."""

    path: str
    line: int
    word: str


@cache
def words() -> Words:
    """Return the project's list."""
    return parse(LIST.read_text(encoding="utf-8"))


def parse(text: str) -> Words:
    """Read a list of words; its head describes the format."""
    replacements: dict[str, str] = {}
    permitted: list[str] = []
    for line in text.splitlines():
        if line.startswith("! "):
            permitted.append(line[2:])
        elif line.strip() and not line.startswith("#"):
            left, right = line.split(" = ", 1)
            replacements |= dict.fromkeys((word.strip() for word in left.split(",")), right.strip())
    longest_first = sorted(replacements, key=len, reverse=True)
    alternatives = "|".join(GAP.join(map(re.escape, word.split())) for word in longest_first)
    return Words(re.compile(rf"(?<![a-z])(?:{alternatives})(?![a-z])"), replacements, tuple(permitted))


def is_checked(path: str) -> bool:
    """Whether a file's text is the project's own prose or code."""
    return path.endswith(TEXT) and not path.startswith(NOT_OURS)


def hits(path: str, text: str, listed: Words) -> Iterator[Hit]:
    """Yield what the list finds in a file's name and text."""
    for found in listed.pattern.finditer(_as_words(path, listed)):
        yield Hit(path, 0, " ".join(re.findall("[a-z]+", found[0])))
    searched = _as_words(text, listed)
    starts = [0, *(match.end() for match in re.finditer("\n", searched))]
    for found in listed.pattern.finditer(searched):
        yield Hit(path, bisect_right(starts, found.start()), " ".join(re.findall("[a-z]+", found[0])))


def _as_words(text: str, listed: Words) -> str:
    """Return the text in lower case with its names taken apart, every line where it was."""
    for permitted in listed.permitted:
        text = text.replace(permitted, "")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ").lower()


def files(revision: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield path and text of the tracked files, of the checkout or of a revision of git."""
    if revision is None:
        for path in _git("ls-files", "-z").decode().split("\0"):
            if is_checked(path) and (ROOT / path).is_file():
                yield path, (ROOT / path).read_text(encoding="utf-8")
        return
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", revision))) as archive:
        for member in archive:
            if is_checked(member.name) and (file := archive.extractfile(member)):
                yield member.name, file.read().decode("utf-8")


def find(revision: str | None = None) -> list[Hit]:
    """Return every hit, by path and line."""
    return [hit for path, text in files(revision) for hit in hits(path, text, words())]


def check(paths: list[str]) -> int:
    """Print each hit with what to write instead; return the exit status."""
    found = [hit for hit in find() if not paths or hit.path.startswith(tuple(paths))]
    for hit in found:
        print(f"{hit.path}:{hit.line}: {hit.word} -> {words().replacements[hit.word]}")
    print(f"{len(found)} words of scripts/words.txt")
    return 1 if found else 0


def _git(*arguments: str) -> bytes:
    return subprocess.run(("git", "-C", str(ROOT), *arguments), check=True, capture_output=True).stdout  # noqa: S603, S607


def main(arguments: list[str]) -> int:
    """Run; return the exit status."""
    match arguments:
        case ["--count", *revision] if len(revision) < 2:
            print(len(find(*revision)))
            return 0
        case paths:
            return check(paths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
