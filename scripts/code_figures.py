"""Print figures about the size and the order of the product's code; the last line is JSON.

`python scripts/code_figures.py [REVISION]` counts the checkout, or a revision of git for comparison.

- `loose_files`: modules directly in a package's root, without `__init__`, `__main__` and `errors` (public faces).
- `modules`: Python modules of the product. `lines`: their lines.
- `repeated_class_names`, `repeated_file_names`: names that stand for more than one class or module.
- `imports_in_functions`: import statements inside functions, without what is slow to import: the packages in `HEAVY`,
  and our own modules that import one of them.
- `crossed_by_one_example`: modules of `gepa_client` that the evaluation of one example enters (see `benchmarks/`).
- `forbidden_words`: hits of the words in `scripts/words.txt` in all tracked text, the tests and pages included.
"""

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("evolverpc", "evolverpc_common", "gepa_client", "gepa_service", "protocol", "rpc_server", "sandbox_runtime")
PUBLIC_FACES = ("__init__.py", "__main__.py", "errors.py")
COMMON_FILES = ("__init__.py", "__main__.py", "app.py", "errors.py")
HEAVY = frozenset(
    (
        "aiohttp",
        "anyio",
        "claude_agent_sdk",
        "dspy",
        "gepa",
        "git",
        "httpx",
        "jsonrpcserver",
        "jwt",
        "litellm",
        "modal",
        "openai",
        "ray",
    )
) | frozenset(("orjson", "pydantic", "pymongo", "rich", "typer", "uv", "uvicorn", "uvloop"))
"""Packages that a function may import when it needs them, so that `--help` starts in under 0.4 s."""

HEAVY_STANDARD = frozenset(("asyncio", "ctypes", "importlib"))
"""Modules of the standard library that commands and programs' processes start faster without."""


def sources(revision: str | None) -> dict[str, str]:
    """Return the product's Python modules as path -> text, from the checkout or from a revision of git."""
    if revision is None:
        names = _git("ls-files", "--", *PACKAGES)
        return {name: (ROOT / name).read_text(encoding="utf-8") for name in names.split() if name.endswith(".py")}
    names = _git("ls-tree", "-r", "--name-only", revision, "--", *PACKAGES)
    return {name: _git("show", f"{revision}:{name}") for name in names.split() if name.endswith(".py")}


def figures(modules: dict[str, str]) -> dict[str, int]:
    """Count; see the module's docstring for each figure."""
    trees = {path: ast.parse(text) for path, text in modules.items()}
    classes = Counter(node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    files = Counter(name for path in modules if (name := Path(path).name) not in COMMON_FILES)
    loose = [path for path in modules if path.count("/") == 1 and Path(path).name not in PUBLIC_FACES]
    return {
        "loose_files": len([path for path in loose if not path.startswith(("protocol/", "evolverpc_common/"))]),
        "modules": len(modules),
        "lines": sum(text.count("\n") for text in modules.values()),
        "repeated_class_names": sum(1 for count in classes.values() if count > 1),
        "repeated_file_names": sum(1 for count in files.values() if count > 1),
        "imports_in_functions": _Imports(trees).in_functions(),
    }


class _Imports:
    """The imports of modules, and which of them are heavy."""

    def __init__(self, trees: dict[str, ast.Module]) -> None:
        self._trees = {_module_name(path): tree for path, tree in trees.items()}
        self._heavy: dict[str, bool] = {}

    def in_functions(self) -> int:
        """Return how many imports inside functions are of something light."""
        functions = (
            node
            for tree in self._trees.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )
        lines = {id(node) for function in functions for node in ast.walk(function) if self._is_light(node)}
        return len(lines)

    def _is_light(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Import | ast.ImportFrom) and not any(map(self._is_heavy, _imported(node)))

    def _is_heavy(self, name: str) -> bool:
        if name.split(".")[0] in HEAVY | HEAVY_STANDARD:
            return True
        if name not in self._trees:
            return False
        if name not in self._heavy:
            self._heavy[name] = False  # while it is looked at: no cycle
            at_top = (node for node in self._trees[name].body if isinstance(node, ast.Import | ast.ImportFrom))
            packages = {name.split(".")[0] for node in at_top for name in _imported(node)} & HEAVY
            own = (name for node in self._trees[name].body for name in _imported(node))
            self._heavy[name] = bool(packages) or any(each in self._trees and self._is_heavy(each) for each in own)
        return self._heavy[name]


def _module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(node: ast.AST) -> list[str]:
    """Return the modules that an import names; of `from a import b` both `a` and `a.b`, as `b` may be a module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        return [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return []


def _git(*arguments: str) -> str:
    done = subprocess.run(("git", "-C", str(ROOT), *arguments), check=True, capture_output=True, text=True)  # noqa: S603, S607
    return done.stdout


def forbidden_words(revision: str | None) -> int:
    """Ask `words.py`, which reads all tracked text."""
    command = (sys.executable, str(ROOT / "scripts" / "words.py"), "--count", *((revision,) if revision else ()))
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else None
    print(json.dumps({**figures(sources(chosen)), "forbidden_words": forbidden_words(chosen)}))
