"""An outline of a commit's code for a model that will request a change: files, definitions, notes; bounded."""

import re
from pathlib import PurePosixPath

from evolverpc_common.node_package_managers import package_folders
from rpc_server.worktrees.repository import UserRepository

AGENT_NOTES = ("AGENTS.md", "CLAUDE.md")
NOTES = (*AGENT_NOTES, "README.md")
"""Files of the program that describe how to work on it, most important first."""

MAX_CHARACTERS = 16_000
MAX_NOTES = 6_000
MAX_READ = 200
"""Files that are read at most; further ones are only named."""

_MAX_BYTES = 256 * 2**10
_LONGEST_LINE = 200

_COMMENT = re.compile(r'\s*(//|#|--|;|/?\*|"""|\'\'\')')
_DEFINITION = re.compile(
    r"""\s*(?:(?:export|default|declare|public|private|protected|static|abstract|final|pub|async)\s+)*(?:
        (?:def|class|function\*?|interface|type|enum|struct|trait|func|fn|sub)\s+[\w$.!?]+\s*
            (?:[(:<{=\[]|$|(?:extends|implements|struct|interface)\b)
      | (?:func\s*\(|impl\b)                                           # methods in Go and Rust
      | (?:(?:const|let|var)\s+)?[\w$\#]+\s*[:=]\s*(?:async\s*)?(?:function\b|\(?[^=;]*=>)
      | (?!(?:if|for|while|switch|catch|with)\b)[\w$\#]+\s*\([^;]*\)\s*(?::[^;=]*)?\{    # a method in TypeScript
    )""",
    re.VERBOSE,
)
"""A line that begins a definition, in Python, TypeScript, Go, Rust, Ruby or Perl."""


def outline_of(repository: UserRepository, commit: str) -> str:
    """Describe the files of the program's folder, then those of other Node packages of its repository.

    Return a text of about `MAX_CHARACTERS` characters at most. Raises `GitError` if the commit is unknown.
    """
    inside = f"{repository.prefix}/" if repository.prefix else ""
    files = repository.files(commit)
    others = tuple(f"{folder}/" for folder in package_folders(files) if folder and not inside.startswith(f"{folder}/"))
    paths = [path for path in files if path.startswith(inside)]
    paths += [path for path in files if path.startswith(others) and not path.startswith(inside)]
    notes = [inside + name for name in NOTES]
    contents = repository.read_all(commit, [*paths[:MAX_READ], *notes])
    lines = []
    for at, path in enumerate(paths):
        name = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        content = contents.get(path) if at < MAX_READ else None
        lines.append(name if content is None else "\n".join([name + _size(content), *_definitions(content)]))
    texts = {path: contents[path].decode("utf-8", "replace").strip() for path in notes if contents.get(path)}
    notes_text = "".join(f"\n{PurePosixPath(path).name}:\n{text}\n" for path, text in texts.items())[:MAX_NOTES]
    listed, most = "\n".join(lines), MAX_CHARACTERS - len(notes_text)
    if len(listed) > most:
        listed = listed[:most].rpartition("\n")[0] + "\n... (more files than fit here)"
    return f"Files ({len(paths)}):\n{listed}\n{notes_text}"


def _size(content: bytes) -> str:
    if b"\0" in content[:8000]:
        return f" (binary, {len(content)} bytes)"
    lines = content.count(b"\n") + bool(content and not content.endswith(b"\n"))
    return f" ({lines} lines)"


def _definitions(content: bytes) -> list[str]:
    """Return the first words of a file's comment at its top and the lines that begin definitions."""
    if len(content) > _MAX_BYTES or b"\0" in content[:8000]:
        return []
    lines = [line[:_LONGEST_LINE].rstrip() for line in content.decode("utf-8", "replace").splitlines()]
    written = [line for line in lines if line and not line.startswith("#!")]
    has_comment = bool(written) and _COMMENT.match(written[0]) is not None
    about = next((line for line in written if any(map(str.isalpha, line))), "") if has_comment else ""
    found = [about] if about else []
    return [f"    {line}" for line in found + [line for line in lines if _DEFINITION.match(line)]]
