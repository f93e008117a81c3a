"""Finds every place of the product that prints a command."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from gepa_client.cli.app import COMMANDS

ROOT = Path(__file__).parents[2]
PACKAGES = ("gepa_client", "rpc_server", "sandbox_runtime", "evolverpc_common", "examples")
OTHER_FILES = ("Makefile", "clients/typescript/src", "clients/dashboard/src")
TARGETS = tuple(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
IN_TEXT = re.compile(
    rf"gepa-client (?:{'|'.join(COMMANDS)})\b[^`;\n\"]*|gepa-server --[^`;\n\"]*|\bmake (?:{'|'.join(TARGETS)})\b"
)
TOOLS = ("gepa-client", "gepa-server", "git", "less")
BUILDERS = ("command", "_command", "next")
"""Functions and methods that put a command together from its words."""

DESCRIBES = ("Argument", "Field", "Option")
"""Calls whose texts are help, which `--help` shows."""


def found() -> set[str]:
    """`FILE::FUNCTION: WORDS` for each place; what is only known when it runs stands as `{}`."""
    places = set()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            tree = ast.parse(path.read_text())
            places |= {f"{name}::{where}: {words.strip()}" for where, words in _in(tree, "")}
    for other in OTHER_FILES:
        files = sorted((ROOT / other).rglob("*.ts*")) if (ROOT / other).is_dir() else [ROOT / other]
        for path in files:
            for line in path.read_text().splitlines():
                if "echo" in line or (path.suffix != "" and not line.lstrip().startswith(("*", "/*", "//"))):
                    name = path.relative_to(ROOT).as_posix()
                    places |= {f"{name}: {words.strip()}" for words in IN_TEXT.findall(line)}
    return places


def _in(node: ast.AST, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in DESCRIBES:
            return
        if name in BUILDERS and (words := _words(node.args)) and not words.startswith("{}"):
            yield where, words
            return
    if isinstance(node, ast.List) and (words := _words(node.elts)).split(" ")[0] in TOOLS and len(node.elts) > 1:
        yield where, words
    if isinstance(node, ast.JoinedStr | ast.Constant):
        yield from ((where, words) for words in IN_TEXT.findall(_text(node)))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FormattedValue):
                yield from _in(child.value, where)
        return
    inside = where
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        inside = f"{where}.{node.name}".strip(".")
    skipped = _docstrings(node)
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield from _in(child, inside)


def _docstrings(node: ast.AST) -> list[ast.AST]:
    """Texts that are statements: of modules, classes, functions and constants."""
    return [
        child
        for child in ast.iter_child_nodes(node)
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
    ]


def _words(nodes: list[ast.expr]) -> str:
    return " ".join(_text(node) for node in nodes)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return "{}"
