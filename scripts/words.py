"""Find the words of `scripts/words.txt`, which must not come back, in names, docstrings, messages, tests and pages.

`python scripts/words.py` fails if a top-level folder has more hits than `scripts/words_allowed.txt` grants.
`--all [PATH...]` lists every hit, `--count [REVISION]` prints their number, `--shrink` lowers the grants to the present
numbers.
"""

import io
import re
import subprocess
import sys
import tarfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "scripts" / "words.txt"
ALLOWED = ROOT / "scripts" / "words_allowed.txt"
TEXT = (
    ".py",
    ".ts",
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
NOT_OURS = ("scripts/words", "clients/typescript/src/generated/", "clients/typescript/dist/")
"""The list and this script, which hold the words, and what is generated from other sources."""
LISTED = 100
"""Hits that a failing check prints; `--all` prints the others."""

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

    @property
    def folder(self) -> str:
        """The top-level folder, or `.` for files beside them."""
        return self.path.split("/")[0] if "/" in self.path else "."


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


def allowed() -> dict[str, int]:
    """Return how many hits each top-level folder may still have."""
    lines = ALLOWED.read_text(encoding="utf-8").splitlines() if ALLOWED.exists() else []
    return {folder: int(count) for folder, count in (line.split() for line in lines if not line.startswith("#"))}


def check() -> int:
    """Compare with what is allowed; return the exit status."""
    found, grants = find(), allowed()
    counts = Counter(hit.folder for hit in found)
    over = sorted(folder for folder in counts if counts[folder] > grants.get(folder, 0))
    listed = [hit for hit in found if hit.folder in over]
    show(listed[:LISTED])
    if len(listed) > LISTED:
        print(f"... and {len(listed) - LISTED} more: `python scripts/words.py --all {' '.join(over)}`")
    for folder in over:
        print(f"{folder}: {counts[folder]} words of scripts/words.txt, {grants.get(folder, 0)} allowed")
    left = sum(counts.values())
    print(f"{left} words of scripts/words.txt" + (": `python scripts/words.py --all PATH` lists them" if left else ""))
    return 1 if over else 0


def show(found: list[Hit]) -> None:
    """Print each hit with what to write instead."""
    for hit in found:
        print(f"{hit.path}:{hit.line}: {hit.word} -> {words().replacements[hit.word]}")


def shrink() -> None:
    """Lower each folder's grant to its present count; a grant is never raised."""
    counts, grants = Counter(hit.folder for hit in find()), allowed()
    kept = {folder: min(count, grants.get(folder, count if not grants else 0)) for folder, count in counts.items()}
    head = "# Hits of scripts/words.txt that are still there, by top-level folder; only lowered (words.py --shrink).\n"
    lines = (f"{folder} {count}\n" for folder, count in sorted(kept.items()) if count)
    ALLOWED.write_text(head + "".join(lines), encoding="utf-8")


def _git(*arguments: str) -> bytes:
    return subprocess.run(("git", "-C", str(ROOT), *arguments), check=True, capture_output=True).stdout  # noqa: S603, S607


def main(arguments: list[str]) -> int:
    """Run; return the exit status."""
    match arguments:
        case []:
            return check()
        case ["--all", *paths]:
            show([hit for hit in find() if not paths or hit.path.startswith(tuple(paths))])
        case ["--count", *revision] if len(revision) < 2:
            print(len(find(*revision)))
        case ["--shrink"]:
            shrink()
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
