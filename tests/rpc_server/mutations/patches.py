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
    "a/../../x",
    "/etc/gepa-test",
    "..",
    "notes/./x.txt",
    ".git/config",
    ".git/hooks/pre-commit",
    ".git",
    ".GIT/config",
    "notes/.git",
    "notes/.GiT/x",
    "GIT~1/hooks/x",
    ".git./config",
    ".git::$INDEX_ALLOCATION/config",
    ".g\u200cit/config",
    "inner/new.txt",
    "notes/link.txt/below",
    "notes/one.txt/below",
)

_NOT_ALLOWED = (
    ".gitmodules",
    "secrets/new.txt",
    "notes/bell\a.txt",
    "notes/new\nline.txt",
    "notes/\udcff\udcfe.txt",
    "n" * 256,
    "/".join(["deep" * 20] * 30),
    "shared/mine.txt",
    "shared",
    "locked.lock",
)

_FINE = (
    "notes/\u00e9\u4e2d.txt",
    'notes/quo"te.txt',
    "notes/back\\slash.txt",
    "-rf",
    "notes/$(touch pwned)",
    "notes/.gitkeep",
    "gitmodules",
    "...",
    "secretsnot/x.txt",
    "NOTES/one.txt",
)

_BAD_TARGETS = (
    "/etc/passwd",
    "..",
    "../beside/canary.txt",
    "notes/../../beside",
    ".git",
    "notes/.GIT/x",
    "inner/../..",
    "notes/../..//beside",
    "notes/../app.py",
    "x" * 5000,
)

_GOOD_TARGETS = ("notes/one.txt", "notes", "./notes//one.txt", "nowhere", "inner/one.txt", "...")

PATCHES = (
    *(Case(f"adds {path!r:.60}", added(path), "edit") for path in _OUT_OF_BOUNDS),
    *(Case(f"links at {path!r:.60}", link(path, "app.py"), "edit") for path in _OUT_OF_BOUNDS),
    *(Case(f"renames to {path!r:.60}", renamed("notes/one.txt", path), "edit") for path in _OUT_OF_BOUNDS[:16]),
    *(Case(f"adds {path!r:.60}", added(path), "paths") for path in _NOT_ALLOWED),
    *(Case(f"renames to {path!r:.60}", renamed("notes/one.txt", path), "paths") for path in _NOT_ALLOWED[:8]),
    *(Case(f"adds {path!r:.60}", added(path), APPLIED) for path in _FINE),
    *(Case(f"links to {target!r:.60}", link("self", target), "paths") for target in _BAD_TARGETS),
    *(Case(f"links to {target!r:.60}", link("notes-link", target), APPLIED) for target in _GOOD_TARGETS),
    Case("is prose", "Please make the program better.\n", "edit"),
    Case("is cut off", changed("app.py", APP_LINE, '"""x"""')[:-8], "edit"),
    Case("has rubbish in a hunk header", "--- a/app.py\n+++ b/app.py\n@@ -1,9999999999 +1 @@\n-x\n+y\n", "edit"),
    Case("was made for other content", changed("app.py", "import nothing", "import something"), "edit"),
    Case("adds a file that is there", added("app.py"), "edit"),
    Case("changes a line", changed("texts.py", 'TEXTS = {"greeting": "hello"}', 'TEXTS = {"greeting": "hi"}'), APPLIED),
    Case("changes it to what it is", changed("texts.py", 'TEXTS = {"greeting": "hello"}', 'TEXTS = {"greeting": "hello"}'), "empty"),
    Case("changes a file and back", changed("secrets/key.txt", "key", "x") + changed("secrets/key.txt", "x", "key"), "empty"),
    Case("breaks the program", changed("texts.py", 'TEXTS = {"greeting": "hello"}', "TEXTS = {"), "start"),
    Case("renames the program", renamed("app.py", "main.py"), "start"),
    Case("renames into a new folder", renamed("notes/one.txt", "other/deep/two.txt"), APPLIED),
    Case("renames what may not change", renamed("secrets/key.txt", "key.txt"), "paths"),
    Case("copies what may not change", renamed("secrets/key.txt", "key.txt", "copy"), APPLIED),
    Case("deletes what may not change", deleted("secrets/key.txt", "key\n"), "paths"),
    Case("copies from outside", renamed("../beside/canary.txt", "canary.txt", "copy"), "edit"),
    Case("copies from .git", renamed(".git/config", "config", "copy"), "edit"),
    Case("makes a file executable", mode("notes/one.txt", "100644", "100755"), APPLIED),
    Case("makes what may not change executable", mode("secrets/key.txt", "100644", "100755"), "paths"),
    Case("makes a file a link by its mode", mode("notes/one.txt", "100644", "120000"), "edit"),
    Case("sets the setuid bit", added("tools/su", "x\n", "104755"), APPLIED),
    Case("adds a folder as a file", added("tools/folder", "x\n", "040000"), "empty"),
    Case("adds a submodule", submodule("vendored"), "paths"),
    Case("changes a link's target", deleted("inner", "notes", "120000") + link("inner", "data"), APPLIED),
    Case("replaces a link by a file", deleted("inner", "notes", "120000") + added("inner"), APPLIED),
    Case("replaces a file by a link out", deleted("texts.py", 'TEXTS = {"greeting": "hello"}\n') + link("texts.py", "/etc/passwd"), "paths"),
    Case("adds a link and a file through it", link("there", "../beside") + added("there/canary.txt"), "edit"),
    Case("adds two links that lead out together", link("one", "notes") + link("deep/two", "../one/../.."), "paths"),
    Case("adds a binary file", binary("data/new.bin", bytes(range(256))), APPLIED),
    Case("adds a huge binary file", binary("data/huge.bin", bytes(4_000_000)), "size"),
    Case("adds a binary file without its content", header("data/x.bin", "new file mode 100644", "index 0000000..1111111") + "Binary files /dev/null and b/data/x.bin differ\n", "edit"),
    Case("is larger than allowed", added("notes/large.txt", "line\n" * 20_000), "size"),
    Case("is small and makes much of it", "".join(renamed("notes/big.txt", f"notes/copy{at}.txt", "copy") for at in range(400)), "size"),
    Case("adds very many files", "".join(added(f"many/{at}.txt", "") for at in range(1000)), "size"),
    Case("has CRLF where the file has", "--- a/notes/dos.txt\n+++ b/notes/dos.txt\n@@ -1,3 +1,3 @@\n one\r\n-two\r\n+deux\r\n three\r\n", APPLIED),
    Case("adds NUL bytes", added("notes/nul.txt", "a\0b\n"), APPLIED),
    Case("adds attributes that name filters", added("notes/.gitattributes", "* filter=evil diff=evil merge=evil\n"), APPLIED),
    Case("adds attributes that fit no encoding", added("data/.gitattributes", "* working-tree-encoding=nonsense\n"), "applied"),
    Case("ignores everything", changed(".gitignore", "*.log", "*").replace("@@ -1 +1 @@", "@@ -1,3 +1,3 @@") + " __pycache__/\n cache/\n", APPLIED),
    Case("adds an ignored file", added("notes/x.log"), APPLIED),
)  # fmt: skip
"""For a project with `links = ["shared"]`, `deny = ["secrets", "**/*.lock"]` and at most 60,000 bytes of a diff."""

SHORT_PATCHES = frozenset(
    (
        *("adds '../beside/canary.txt'", "adds '.git/hooks/pre-commit'", "adds 'GIT~1/hooks/x'", "adds '.gitmodules'"),
        *("adds 'inner/new.txt'", "links at '.GIT/config'", "renames to 'a/../../x'", "adds 'secrets/new.txt'"),
        *("adds 'shared/mine.txt'", "adds 'notes/$(touch pwned)'", "links to '/etc/passwd'", "links to 'inner/../..'"),
        *("is cut off", "renames into a new folder", "copies from .git", "makes a file a link by its mode"),
        *("adds a submodule", "replaces a file by a link out", "adds a link and a file through it"),
        *("adds two links that lead out together", "is larger than allowed", "is small and makes much of it"),
        *("changes it to what it is", "adds attributes that name filters"),
    )
)
"""What is run by `make test`."""
