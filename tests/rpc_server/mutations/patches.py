"""Patches that a client might send, good and hostile, each with its expected outcome: `applied`, or a stage."""
# ruff: noqa: E501  # a case is a line

import base64
import zlib
from dataclasses import dataclass

APPLIED = "applied"


@dataclass(frozen=True)
class Case:
    """`given` is the diff of a patch or the script of an agent."""

    about: str
    given: str
    outcome: str


def header(path: str, *lines: str) -> str:
    return "".join(f"{line}\n" for line in (f"diff --git {_side('a', path)} {_side('b', path)}", *lines))


def added(path: str, text: str = "new\n", mode: str = "100644") -> str:
    lines = text.splitlines(keepends=True)
    body = "".join(f"+{line}" if line.endswith("\n") else f"+{line}\n\\ No newline at end of file\n" for line in lines)
    head = header(path, f"new file mode {mode}", "index 0000000..1111111")
    if not lines:
        return head
    return f"{head}--- /dev/null\n+++ {_side('b', path)}\n@@ -0,0 +1,{len(lines)} @@\n{body}"


def link(path: str, target: str) -> str:
    return added(path, target, "120000")


def deleted(path: str, text: str, mode: str = "100644") -> str:
    lines = text.splitlines(keepends=True)
    body = "".join(f"-{line}" if line.endswith("\n") else f"-{line}\n\\ No newline at end of file\n" for line in lines)
    head = header(path, f"deleted file mode {mode}", "index 1111111..0000000")
    return f"{head}--- {_side('a', path)}\n+++ /dev/null\n@@ -1,{len(lines)} +0,0 @@\n{body}"


def changed(path: str, old: str, new: str) -> str:
    return f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n"


def renamed(old: str, new: str, verb: str = "rename") -> str:
    return (
        f"diff --git {_side('a', old)} {_side('b', new)}\nsimilarity index 100%\n"
        f"{verb} from {_quoted(old)}\n{verb} to {_quoted(new)}\n"
    )


def mode(path: str, old: str, new: str) -> str:
    return header(path, f"old mode {old}", f"new mode {new}")


def submodule(path: str) -> str:
    return added(path, f"Subproject commit {'1' * 40}\n", "160000")


def binary(path: str, content: bytes) -> str:
    packed = zlib.compress(content)
    lines = []
    for at in range(0, len(packed), 52):
        piece = packed[at : at + 52]
        size = chr(ord("A") + len(piece) - 1) if len(piece) <= 26 else chr(ord("a") + len(piece) - 27)
        lines.append(size + base64.b85encode(piece + b"\0" * (-len(piece) % 4)).decode())
    # git takes binary content only with the full name of the new blob
    import hashlib

    name = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324  # git's own
    body = "".join(f"{line}\n" for line in lines)
    zeros = "0" * 40
    return header(path, "new file mode 100644", f"index {zeros}..{name}", "GIT binary patch") + (
        f"literal {len(content)}\n{body}\nliteral 0\nHcmV?d00001\n\n"
    )


def _side(side: str, path: str) -> str:
    return _quoted(f"{side}/{path}")


def _quoted(path: str) -> str:
    if path.isprintable() and path.isascii() and '"' not in path and "\\" not in path:
        return path
    escaped = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\{byte:03o}"
        for byte in path.encode("utf-8", "surrogateescape")
    )
    return f'"{escaped}"'


APP_LINE = '"""Answer with the greeting."""'

_OUT_OF_BOUNDS = (
    "../beside/canary.txt",
    "notes/../../beside/canary.txt",
    "a/../../x",
    "/etc/gepa-test",
    "..",
    ".",
    ".git/config",
    ".git/hooks/pre-commit",
    ".git",
    ".GIT/config",
    "notes/.git/config",
    "GIT~1/hooks/x",
    ".git::$INDEX_ALLOCATION/config",
    "inner/new.txt",
    "notes/link.txt/below",
)

_NOT_ALLOWED = (
    ".gitmodules",
    ".GitModules",
    "secrets/new.txt",
    "notes/new\nline.txt",
    "notes/\udcff\udcfe.txt",
    "n" * 256,
    "/".join(["deep" * 20] * 30),
    "shared/mine.txt",
    "shared",
    "locked.lock",
)

_FINE = (
    "notes/new.txt",
    "notes/ space.txt",
    "notes/\u00e9\u4e2d.txt",
    'notes/quo"te.txt',
    "notes/$(touch pwned)",
    "notes/x.git/config",
    "secretsnot/x.txt",
    "/".join(["deep"] * 60) + "/x",
)

_BAD_TARGETS = (
    "/etc/passwd",
    "..",
    "../beside/canary.txt",
    "notes/../../beside",
    ".git",
    ".git/config",
    "notes/.GIT/x",
    "inner/../..",
    "self",
    "x" * 5000,
)

_GOOD_TARGETS = ("notes/one.txt", "notes", "./notes//one.txt", "nowhere", "inner/one.txt", "notes/../app.py", "...")

PATCHES = (
    *(Case(f"adds {path!r:.60}", added(path), "edit") for path in _OUT_OF_BOUNDS),
    *(Case(f"links at {path!r:.60}", link(path, "app.py"), "edit") for path in _OUT_OF_BOUNDS),
    *(Case(f"renames to {path!r:.60}", renamed("notes/one.txt", path), "edit") for path in _OUT_OF_BOUNDS[:11]),
    *(Case(f"adds {path!r:.60}", added(path), "paths") for path in _NOT_ALLOWED),
    *(Case(f"renames to {path!r:.60}", renamed("notes/one.txt", path), "paths") for path in _NOT_ALLOWED[:5]),
    *(Case(f"adds {path!r:.60}", added(path), APPLIED) for path in _FINE),
    *(Case(f"links to {target!r:.60}", link("self", target), "paths") for target in _BAD_TARGETS),
    *(Case(f"links to {target!r:.60}", link("notes-link", target), APPLIED) for target in _GOOD_TARGETS),
    Case("is cut off", changed("app.py", APP_LINE, '"""x"""')[:-8], "edit"),
    Case("was made for other content", changed("app.py", "import nothing", "import something"), "edit"),
    Case("changes a line", changed("texts.py", 'TEXTS = {"greeting": "hello"}', 'TEXTS = {"greeting": "hi"}'), APPLIED),
    Case("changes it to what it is", changed("texts.py", 'TEXTS = {"greeting": "hello"}', 'TEXTS = {"greeting": "hello"}'), "empty"),
    Case("breaks the program", changed("texts.py", 'TEXTS = {"greeting": "hello"}', "TEXTS = {"), "start"),
    Case("renames into a new folder", renamed("notes/one.txt", "other/deep/two.txt"), APPLIED),
    Case("renames what may not change", renamed("secrets/key.txt", "key.txt"), "paths"),
    Case("copies from .git", renamed(".git/config", "config", "copy"), "edit"),
    Case("makes a file a link by its mode", mode("notes/one.txt", "100644", "120000"), "edit"),
    Case("adds a submodule", submodule("vendored"), "paths"),
    Case("replaces a file by a link out", deleted("texts.py", 'TEXTS = {"greeting": "hello"}\n') + link("texts.py", "/etc/passwd"), "paths"),
    Case("adds a link and a file through it", link("there", "../beside") + added("there/canary.txt"), "edit"),
    Case("adds two links that lead out together", link("one", "notes") + link("deep/two", "../one/../.."), "paths"),
    Case("adds a binary file", binary("data/new.bin", bytes(range(256))), APPLIED),
    Case("is larger than allowed", added("notes/large.txt", "line\n" * 20_000), "size"),
    Case("is small and makes much of it", "".join(renamed("notes/big.txt", f"notes/copy{at}.txt", "copy") for at in range(400)), "size"),
    Case("has CRLF where the file has", "--- a/notes/dos.txt\n+++ b/notes/dos.txt\n@@ -1,3 +1,3 @@\n one\r\n-two\r\n+deux\r\n three\r\n", APPLIED),
    Case("adds attributes that name filters", added("notes/.gitattributes", "* filter=evil diff=evil merge=evil\n"), APPLIED),
)  # fmt: skip
"""For a project with `links = ["shared"]`, `deny = ["secrets", "**/*.lock"]` and at most 60,000 bytes of a diff."""

SHORT_PATCHES = frozenset(
    (
        *(
            "adds '../beside/canary.txt'",
            "adds '/etc/gepa-test'",
            "adds '.git/hooks/pre-commit'",
            "adds 'GIT~1/hooks/x'",
        ),
        *("adds 'inner/new.txt'", "links at '.GIT/config'", "renames to 'a/../../x'", "adds '.gitmodules'"),
        *(
            "adds 'secrets/new.txt'",
            "adds 'shared/mine.txt'",
            "adds 'locked.lock'",
            "renames to 'notes/new\\nline.txt'",
        ),
        *("adds 'notes/$(touch pwned)'", "links to '/etc/passwd'", "links to 'inner/../..'", "links to 'self'"),
        *("links to 'notes/one.txt'", "is cut off", "was made for other content", "changes it to what it is"),
        *("breaks the program", "renames into a new folder", "renames what may not change", "copies from .git"),
        *("makes a file a link by its mode", "adds a submodule", "replaces a file by a link out"),
        *("adds a link and a file through it", "adds two links that lead out together", "adds a binary file"),
        *("is larger than allowed", "is small and makes much of it", "has CRLF where the file has"),
        "adds attributes that name filters",
    )
)
"""What is run by `make test`."""
