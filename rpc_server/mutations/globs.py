"""Which paths a list of globs means."""

import re
from collections.abc import Sequence


class Globs:
    """Patterns of paths from the repository's top, with `/` between names; case counts.

    `*` and `?` stand for what is inside one name, `[abc]`, `[a-z]` and `[!abc]` for one character of it, a whole name
    `**` for any number of folders, also none. A pattern that matches a folder means everything in it: `src`, `src/` and
    `src/**` are the same, `**/*.lock` means such files at any depth.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [(pattern, re.compile(_regex(pattern), re.DOTALL)) for pattern in patterns]

    def matching(self, path: str) -> str | None:
        """The first pattern that means this path; None where none does."""
        for pattern, regex in self._patterns:
            if regex.match(path):
                return pattern
        return None


def _regex(pattern: str) -> str:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    while names[-1:] == ["**"]:
        names.pop()
    if not names:
        return "" if "**" in pattern.split("/") else "(?!)"
    return "".join("(?:[^/]+/)*" if name == "**" else _name(name) + "/" for name in names)[:-1] + r"(?:/|\Z)"


def _name(glob: str) -> str:
    parts = []
    at = 0
    while at < len(glob):
        char = glob[at]
        end = glob.find("]", at + 3 if glob[at + 1 : at + 2] == "!" else at + 2) if char == "[" else -1
        if char == "*":
            parts.append("[^/]*")
        elif char == "?":
            parts.append("[^/]")
        elif end > 0:
            negated = glob[at + 1] == "!"
            chosen = re.sub(r"([\\\[\]^&~|])", r"\\\1", glob[at + 1 + negated : end])
            parts.append(f"(?!/)[{'^' if negated else ''}{chosen}]")
            at = end
        else:
            parts.append(re.escape(char))
        at += 1
    return "".join(parts)
