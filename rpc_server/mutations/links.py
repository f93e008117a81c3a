"""Whether the symbolic links of a tree stay inside it."""

from collections.abc import Mapping

_MOST_STEPS = 40
"""As many links as Linux follows for one path."""

_MOST_BYTES = 4095


def leaving(links: Mapping[str, str]) -> dict[str, str]:
    """Of a tree's links, target by path, those that may not be there, and why.

    A target is resolved as the system would, through the tree's other links; what it names need not exist.
    """
    return {path: why for path, target in links.items() if (why := _fault(path, target, links)) is not None}


def _fault(path: str, target: str, links: Mapping[str, str]) -> str | None:
    if not target or "\0" in target or len(target.encode(errors="surrogateescape")) > _MOST_BYTES:
        return "its target is no path"
    names = path.split("/")[:-1]
    waiting = target.split("/")[::-1]
    if target.startswith("/"):
        return "its target is absolute"
    steps = 0
    while waiting:
        name = waiting.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if not names:
                return "it leads out of the repository"
            names.pop()
            continue
        if name.lower() == ".git":
            return "it leads into .git"
        names.append(name)
        onward = links.get("/".join(names))
        if onward is None:
            continue
        steps += 1
        if steps > _MOST_STEPS:
            return "it goes round in a circle"
        if onward.startswith("/"):
            return "it leads out of the repository"
        names.pop()
        waiting += onward.split("/")[::-1]
    return None
