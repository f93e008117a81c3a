"""Digests of the functions, classes and constants of a live program, by which a change of any of them is found."""

import dis
import functools
import hashlib
import inspect
import json
from collections.abc import Mapping
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

_DIGITS = 16
_EMPTY = CellType()


def live_digests(parts: Mapping[str, object]) -> dict[str, str]:
    """Return the beginning of a SHA-256 for each part, by names such as `function run`, and for what the parts use.

    `parts`: functions, methods and objects by name. What they use are the functions, classes and constants of their own
    modules that their source names, and those that these name in turn. A constant is a text, a number, or a tuple or
    set of these that no function assigns. Lists and dicts of JSON that hold something are under `data NAME`: as they
    may be filled during a run, a change of them is no other program. Other objects, and functions without a source,
    such as those typed at Python's prompt, are not covered.
    """
    walk = _Walk({_function_of(part).__module__ for part in parts.values()})
    for name, part in sorted(parts.items()):
        walk.add(name, part)
    return {
        name: hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
        for name, text in walk.texts.items()
        if name not in walk.assigned
    }


class _Walk:
    """Follows what code names. `texts`: found by name; `assigned`: names of values that a function assigns."""

    def __init__(self, modules: set[str | None]) -> None:
        self._modules = modules
        self._seen: set[int] = set()
        self.texts: dict[str, str] = {}
        self.assigned: set[str] = set()

    def add(self, name: str, part: Any) -> None:
        """Add a function, a class or an object of a class, under this name, with what it uses."""
        value = _function_of(part)
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, FunctionType):
            self._put(f"function {name}", _source(value))
            self._follow(name, value)
        elif isinstance(value, type):
            self._put(f"class {name}", _source(value) or repr(inspect.get_annotations(value)))
            for key, member in vars(value).items():
                if not (key.startswith("__") and _is_constant(member)):  # such as a class's place in its file
                    self._use(f"{name}.{key}", member)
            for base in value.__bases__:
                self._use(base.__name__, base)
        else:
            self.add(name, type(value))
        if isinstance(part, MethodType):
            self._use(type(part.__self__).__name__, type(part.__self__))

    def _use(self, name: str, value: Any) -> None:
        """Add a value that code names, unless it belongs to another module or may change during a run."""
        if _is_constant(value):
            self._put(f"value {name}", repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value))
            return
        if isinstance(value, list | dict):
            if value and (text := _as_json(value)):
                self._put(f"data {name}", text)
            return
        value = _function_of(value)
        owner = value if isinstance(value, FunctionType | type) else type(value)
        if owner.__module__ in self._modules:
            self.add(name if owner is value else owner.__name__, owner)

    def _follow(self, name: str, function: FunctionType) -> None:
        named, assigned = _names_in(function.__code__)
        self.assigned.update(f"value {each}" for each in assigned)
        used = {each: function.__globals__[each] for each in named & function.__globals__.keys()}
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        closed_over = {each: cell.cell_contents for each, cell in cells if cell != _EMPTY}
        used |= {getattr(value, "__name__", each): value for each, value in closed_over.items()}
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        used |= {f"{name}, default {number}": default for number, default in enumerate(defaults)}
        for each, value in sorted(used.items()):
            self._use(each, value)

    def _put(self, name: str, text: str) -> None:
        self.texts[name] = self.texts.get(name, "") + text


def _function_of(value: Any) -> Any:
    """Return what a method, a property or a partial call calls; any other value itself."""
    while True:
        if isinstance(value, MethodType | staticmethod | classmethod):
            value = value.__func__
        elif isinstance(value, functools.partial | functools.cached_property):
            value = value.func
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(value, functools._lru_cache_wrapper):
            value = value.__wrapped__
        else:
            return value


def _as_json(value: object) -> str:
    """Return the value as JSON; "" if it holds anything else."""
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return ""


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_constant, value))
    return type(value) in (str, bytes, int, float, bool)


def _names_in(code: CodeType) -> tuple[set[str], set[str]]:
    """Return the outer names that a function, or a function within it, reads, and those that it assigns."""
    steps = [*dis.get_instructions(code)]
    named = {step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    assigned = {step.argval for step in steps if step.opname == "STORE_GLOBAL"}
    assigned |= {step.argval for step in steps if step.opname == "STORE_DEREF"} & {*code.co_freevars}
    for part in code.co_consts:
        if isinstance(part, CodeType):
            inner = _names_in(part)
            named, assigned = named | inner[0], assigned | inner[1]
    return named, assigned


def _source(value: FunctionType | type) -> str:
    """Return the source; "" if it was typed at a prompt, or made by a library."""
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return ""
