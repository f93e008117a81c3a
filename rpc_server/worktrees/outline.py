"""An outline of a commit's code for a model that will request a change: files, definitions, notes; bounded."""

import ast
import warnings
from pathlib import PurePosixPath

from evolverpc_common.node_tools import package_folders
from rpc_server.worktrees import typescript_outline
from rpc_server.worktrees.repository import UserRepository

NOTES = ("AGENTS.md", "CLAUDE.md", "README.md")
"""Files of the program that describe how to work on it, most important first."""

MAX_CHARACTERS = 16_000
MAX_NOTES = 6_000
MAX_READ = 200
"""Files that are read at most; further ones are only named."""

_MAX_BYTES = 256 * 2**10
_COMMENT = ("//", "#", "--", ";", "*", "/*")


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
        name, content = _printable(path), contents.get(path) if at < MAX_READ else None
        lines.append(name if content is None else "\n".join([name + _size(content), *_definitions(path, content)]))
    notes_text = "".join(_note(path, contents[path]) for path in notes if contents.get(path))[:MAX_NOTES]
    listed = _cut("\n".join(lines), MAX_CHARACTERS - len(notes_text))
    return f"Files ({len(paths)}):\n{listed}\n{notes_text}"


def _size(content: bytes) -> str:
    if b"\0" in content[:8000]:
        return f" (binary, {len(content)} bytes)"
    lines = content.count(b"\n") + bool(content and not content.endswith(b"\n"))
    return f" ({lines} lines)"


def _definitions(path: str, content: bytes) -> list[str]:
    if len(content) > _MAX_BYTES or b"\0" in content[:8000]:
        return []
    suffix = PurePosixPath(path).suffix
    if suffix in typescript_outline.SUFFIXES:
        return typescript_outline.definitions(path, content)
    text = content.decode("utf-8", "replace")
    if suffix != ".py":
        first = text.lstrip().split("\n", 1)[0].strip()
        return [f"    {first[:160]}"] if first.startswith(_COMMENT) else []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about its style
            module = ast.parse(text)
        about = (ast.get_docstring(module) or "").split("\n", 1)[0]
        return [*([f'    """{about}"""'] if about else []), *_members(module.body, "    ")]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [f"    (no Python: {error})"]


def _members(body: list[ast.stmt], indent: str) -> list[str]:
    lines = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
            lines.append(f"{indent}{kind} {node.name}({ast.unparse(node.args)})")
        elif isinstance(node, ast.ClassDef):
            bases = ", ".join(ast.unparse(base) for base in node.bases)
            lines.append(f"{indent}class {node.name}" + (f"({bases})" if bases else ""))
            lines += _members(node.body, indent + "    ")
    return lines


def _note(path: str, content: bytes) -> str:
    return f"\n{PurePosixPath(path).name}:\n{content.decode('utf-8', 'replace').strip()}\n"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return text[:most].rpartition("\n")[0] + "\n... (more files than fit here)"


def _printable(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
