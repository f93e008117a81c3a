"""The end of a long output, and the error of Node in it."""

import json
import re
from pathlib import Path

from evolverpc_common.files import no_such_file
from evolverpc_common.node_tools import MODULES, PACKAGE_JSON


class OutputTail:
    """Keeps the last `limit` bytes that are added."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self._kept += data
        if len(self._kept) > 2 * self._limit:  # not at every piece: each cut moves all that is kept
            del self._kept[: -self._limit]

    def bytes(self) -> bytes:
        """Return the last bytes."""
        return bytes(self._kept[-self._limit :])

    def text(self) -> str:
        """Return them as text, with replacements for what is not UTF-8."""
        return self.bytes().decode("utf-8", "replace")


_UNCAUGHT = re.compile(
    r"^(?P<place>\S[^\n]*):(?P<line>\d+)\n(?P<frame>[^\n]*\n *\^+)\n+(?P<error>[^\n]+(?:\n(?!    at |\n)[^\n]+)*)"
    r"(?P<stack>(?:\n    at [^\n]*)*)",
    re.MULTILINE,
)
"""What Node prints if it ends by an error, and before `_END`. Nothing follows that could fail: the search is linear."""

_END = "\nNode.js v"

_NO_MODULE = re.compile(
    r"Cannot find module '(?P<name>[^']+)'(?: imported from (?P<by>.+)|\nRequire stack:\n- (?P<of>.+))?"
)
_NO_PACKAGE = re.compile(r"Cannot find package '(?P<name>[^']+)' imported from (?P<by>.+)")
_NO_TYPESCRIPT = re.compile(r'Unknown file extension "\.[mc]?tsx?" for (?P<file>.+)')
_NOT_COMPILED = re.compile(r"\n(?P<file>[^\n]+?):(?P<line>\d+):\d+: ERROR: (?P<what>[^\n]+)")
_OWN = "file://"


def node_failure(output: str) -> tuple[str, str] | None:
    """Return the error that ended a Node process in one line, and the rest of its output without Node's own frames.

    The rest has the line of code only if that is in the user's file. None if the output has no such error, or one of
    Node itself or a package that no rule explains.
    """
    printed, end, after = output.rpartition(_END)
    found = _UNCAUGHT.search(printed) if end else None
    if found is None:
        return None
    place, error, frame = found["place"].removeprefix(_OWN), found["error"], ""
    if (reason := _missing(error)) is None:
        if compiled := _NOT_COMPILED.search(error):
            reason = f"{compiled['file']}, line {compiled['line']}: {compiled['what']}; correct it and start again"
        elif place.startswith("node:") or "/node_modules/" in place:
            return None
        else:
            reason = f"{place}, line {found['line']}: {error.splitlines()[0]}"
            reason += "; correct it and start again" if error.startswith("SyntaxError") else ""
            own = [line for line in found["stack"].splitlines() if "node:" not in line and "/node_modules/" not in line]
            frame = "\n".join([found["frame"], *filter(None, own)])
    rest = after.partition("\n")[2]
    return reason, f"{printed[: found.start()]}{frame}\n{rest}".strip("\n")


def _missing(error: str) -> str | None:
    """Return which file or package is not there, and what to do; None if the error is another one."""
    if module := _NO_MODULE.search(error):
        by, name = module["by"] or module["of"] or "", module["name"]
        if not name.startswith("/"):
            return f"{by} requires {name}, which is not there: install or correct it"
        next_step = f"; {by} imports it" if by and not by.endswith("/") else "; correct the command"
        return no_such_file(name) + (_build_of(Path(name)) or next_step)
    if package := _NO_PACKAGE.search(error):
        folder = Path(package["by"]).parent
        return f"{package['by']} imports {package['name']}, which is not installed: run npm install in {folder}"
    if script := _NO_TYPESCRIPT.search(error):
        file = script["file"]
        return f"{file}: this Node runs no TypeScript: npm install tsx, then start it with node --import tsx {file}"
    return None


def _build_of(missing: Path) -> str:
    """Return how to make a missing file of a package of the user's with a `build` script; nothing for another file."""
    folder = next((above for above in missing.parents if (above / PACKAGE_JSON).is_file()), None)
    if folder is None or MODULES in folder.resolve().parts:
        return ""
    try:
        scripts = json.loads((folder / PACKAGE_JSON).read_bytes()).get("scripts")
    except (OSError, ValueError, AttributeError):
        return ""
    if not isinstance(scripts, dict) or "build" not in scripts:
        return ""
    return f"; {folder} has a script `build`: set build_command, such as to `npm run build`"
