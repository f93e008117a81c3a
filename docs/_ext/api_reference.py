"""The directive `api-reference`: a package's public names with signatures and docstrings, read as Markdown."""

import inspect
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from docutils import nodes
from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class ApiReference(SphinxDirective):
    """`:::{api-reference} package`; documents what the package lists in `__all__`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the parsed Markdown of all names."""
        return self.parse_text_to_nodes(markdown(self.arguments[0]), allow_section_headings=True)


@cache
def markdown(package: str) -> str:
    """Return the public names of a package with their documentation."""
    module = import_module(package)
    return "\n\n".join(filter(None, (_described(name, getattr(module, name)) for name in module.__all__)))


def _described(name: str, thing: Any) -> str:
    if isinstance(thing, ModuleType):
        return ""
    if inspect.isclass(thing):
        fields = _fields(thing)
        members = [_member(key, value) for key, value in vars(thing).items() if not key.startswith("_")]
        head = f"class {name}{'' if fields else _signature(thing)}"
        return "\n\n".join([f"### `{name}`", _code(head), _doc(thing), fields, *filter(None, members)])
    if callable(thing):
        return "\n\n".join([f"### `{name}`", _code(f"def {name}{_signature(thing)}"), _doc(thing)])
    return f"### `{name}`\n\n{_code(f'{name} = {thing!r}'[:400])}"


def _fields(thing: type) -> str:
    if not issubclass(thing, BaseModel):
        return ""
    rows = [f"- `{name}`: {field.description or ''}" for name, field in thing.model_fields.items()]
    return "\n".join(rows)


def _member(name: str, value: Any) -> str:
    if name.startswith("model_"):
        return ""
    if isinstance(value, property):
        return f"`{name}`: {_doc(value)}" if value.__doc__ else ""
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if not inspect.isfunction(function) or not function.__doc__:
        return ""
    prefix = "async def" if inspect.iscoroutinefunction(function) else "def"
    return "\n\n".join([_code(f"{prefix} {name}{_signature(function)}"), _doc(function)])


def _signature(thing: Any) -> str:
    try:
        return str(inspect.signature(thing)).replace("typing.", "")
    except (TypeError, ValueError):
        return "(...)"


def _doc(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("api-reference", ApiReference)
    return {"parallel_read_safe": True}
