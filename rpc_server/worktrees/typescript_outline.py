"""Outline a TypeScript or JavaScript file: classes with their methods, functions and types, each with its comment."""

import functools
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

WITH_JSX = (".tsx", ".jsx", ".js", ".mjs", ".cjs")
SUFFIXES = (".ts", ".mts", ".cts", *WITH_JSX)

_LONGEST = 200
_CLASSES = ("class_declaration", "abstract_class_declaration", "class")
_FUNCTIONS = ("arrow_function", "function_expression", "generator_function")
_DEFINITIONS = (
    *_CLASSES,
    *_FUNCTIONS,
    *("function_declaration", "generator_function_declaration", "function_signature"),
    *("method_definition", "abstract_method_signature"),
    *("interface_declaration", "type_alias_declaration", "enum_declaration"),
)
_HOLDERS = ("lexical_declaration", "variable_declaration", "public_field_definition", "pair")
"""What holds a function as its value: `const ask = async (question) => ...`."""

_AROUND_OBJECTS = (
    *("export_statement", "lexical_declaration", "variable_declarator", "expression_statement", "await_expression"),
    *("call_expression", "new_expression", "arguments", "satisfies_expression", "as_expression", "object", "pair"),
)
"""What leads to an object of functions: `await serve({ run: ... })`."""


def definitions(path: str, content: bytes) -> list[str]:
    """Return a line for each definition, indented, after the comment of the file, as far as it can be parsed."""
    top = _parser(PurePosixPath(path).suffix in WITH_JSX).parse(content).root_node.named_children
    first = next((node for node in top if node.type != "hash_bang_line"), None)
    try:
        about = [] if first is None or first.type != "comment" or _is_about_next(first) else [_sentence(first)]
        return [*(f"    // {line}" for line in about if line), *_definitions(top, "    ")]
    except RecursionError:
        return ["    (nested too deep)"]


@functools.cache
def _parser(with_jsx: bool) -> "Parser":
    import tree_sitter
    import tree_sitter_typescript

    grammar = tree_sitter_typescript.language_tsx() if with_jsx else tree_sitter_typescript.language_typescript()
    return tree_sitter.Parser(tree_sitter.Language(grammar))


def _definitions(nodes: "list[Node]", indent: str) -> Iterator[str]:
    for node in nodes:
        if (end := _end_of_head(node)) is None:
            continue
        start = next((child for child in node.children if child.type not in ("decorator", "comment")), node).start_byte
        before = node.prev_named_sibling
        about = _sentence(before) if before is not None and before.type == "comment" and _is_about_next(before) else ""
        yield indent + _head(node, start, end) + (f"  // {about}" if about else "")
        definition = _exported(node)
        body = definition.child_by_field_name("body") if definition.type in _CLASSES else None
        yield from _definitions(_functions_in_objects(node) if body is None else body.named_children, indent + "    ")


def _functions_in_objects(node: "Node") -> "list[Node]":
    """Return what is or holds a function in an object that a statement passes or assigns."""
    found = []
    for child in node.named_children if node.type in _AROUND_OBJECTS else ():
        if child.type in ("pair", "method_definition"):
            found += [child] if _end_of_head(child) is not None else []
        else:
            found += _functions_in_objects(child)
    return found


def _exported(node: "Node") -> "Node":
    """Return what an `export` exports; any other node itself."""
    fields = ("declaration", "value") if node.type == "export_statement" else ()
    return next(filter(None, map(node.child_by_field_name, fields)), node)


def _end_of_head(node: "Node") -> int | None:
    """Return where the body or the object of a definition begins, the end if it has none; None for what is none."""
    if members := _functions_in_objects(node):
        return (members[0].parent or node).start_byte
    definition = _exported(node)
    if definition.type in _HOLDERS:
        holders = [child for child in definition.named_children if child.type == "variable_declarator"] or [definition]
        value = holders[0].child_by_field_name("value")
        return None if value is None or value.type not in _FUNCTIONS else _end_of_head_of(value)
    return _end_of_head_of(definition) if definition.type in _DEFINITIONS else None


def _end_of_head_of(node: "Node") -> int:
    field = "value" if node.type == "type_alias_declaration" else "body"
    body = node.child_by_field_name(field)
    return node.end_byte if body is None else body.start_byte


def _head(node: "Node", start: int, end: int) -> str:
    text = (node.text or b"")[start - node.start_byte : end - node.start_byte].decode("utf-8", "replace")
    line = " ".join(text.split()).removesuffix(";").removesuffix("=>").removesuffix("=").removesuffix("(").rstrip()
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _is_about_next(comment: "Node") -> bool:
    """Return whether a definition follows on the next line."""
    following = comment.next_named_sibling
    if following is None or following.start_point.row != comment.end_point.row + 1:
        return False
    return _end_of_head(following) is not None


def _sentence(comment: "Node") -> str:
    """Return the first line of a comment that has words, without its marks."""
    lines = (comment.text or b"").decode("utf-8", "replace").removesuffix("*/").splitlines()
    words = (line.strip().lstrip("/*").strip() for line in lines)
    return next((line for line in words if line), "")[:_LONGEST]
