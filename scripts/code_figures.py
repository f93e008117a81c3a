"""Print figures about the size and the order of the product's code; the last line is JSON.

`python scripts/code_figures.py [REVISION]` counts the checkout, or a revision of git for comparison.

- `loose_files`: modules directly in a package's root, without `__init__`, `__main__` and `errors` (public faces).
- `modules`: Python modules of the product. `lines`: their lines.
- `repeated_class_names`, `repeated_file_names`: names that stand for more than one class or module.
- `imports_in_functions`: import statements inside functions, without the heavy packages in `HEAVY`.
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
PACKAGES = ("evolverpc_common", "gepa_client", "protocol", "rpc_server", "sandbox_runtime")
PUBLIC_FACES = ("__init__.py", "__main__.py", "errors.py")
COMMON_FILES = ("__init__.py", "__main__.py", "app.py", "errors.py")
HEAVY = frozenset(
    ("aiohttp", "anyio", "claude_agent_sdk", "dspy", "gepa", "git", "jsonrpcserver", "jwt", "litellm", "modal")
) | frozenset(("orjson", "pydantic", "pymongo", "rich", "typer", "uvicorn", "uvloop"))
"""Packages that a function may import when it needs them, so that `--help` starts in under 0.4 s."""


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
        "imports_in_functions": sum(len(_light_imports(tree)) for tree in trees.values()),
    }


def _light_imports(tree: ast.Module) -> list[int]:
    """Return the lines of imports inside functions that import something else than the heavy packages."""
    lines = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if any(name.split(".")[0] not in HEAVY for name in names):
                lines.append(node.lineno)
    return sorted(set(lines))


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
