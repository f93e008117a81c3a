"""The worker's configuration, the import of the user's module or class, and a digest of the program's code."""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import importlib.util
import json
import os
import sys
from types import ModuleType
from typing import Any

from .errors import ProgramProblem
from .json_values import is_unicode
from .network_calls import ExampleCalls

_INSTALLED = ("site-packages", "dist-packages")
_ENVIRONMENT = "pyvenv.cfg"
_STANDARD_LIBRARY = os.path.dirname(os.path.realpath(os.__file__))
_MOST_FILES = 200
_FILE_DIGEST = 16
_OWN_PACKAGE = __name__.partition(".")[0]


def _digests_of(settings: Any, root: str, entry: ModuleType | None) -> tuple[str, dict[str, str]]:
    """Return the SHA-256 over `settings` (JSON) and the program's own files, and one of each (of `_MOST_FILES`).

    These are of modules loaded so far, under `root` or in the folder of `entry`, the module it starts from; never
    installed packages, environments or the standard library. The same files under another root have the same digest.
    """
    digest = hashlib.sha256()
    files: dict[str, str] = {}
    _add(digest, "settings", json.dumps(settings, sort_keys=True).encode())
    for name, path in sorted(_own_files(_program_folders(root, entry), entry).items()):
        content = _content(path)
        _add(digest, name, content)
        if len(files) < _MOST_FILES:
            files[name.encode("utf-8", "replace").decode()] = hashlib.sha256(content).hexdigest()[:_FILE_DIGEST]
    return digest.hexdigest(), files


def _add(digest: Any, name: str, content: bytes) -> None:
    """Add an item with its lengths, so that no two lists of files have the same bytes."""
    head = name.encode("utf-8", "surrogateescape")
    digest.update(b"%d %d\n" % (len(head), len(content)))
    digest.update(head)
    digest.update(content)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""  # removed since, or in an archive: its name still counts


def _program_folders(root: str, entry: ModuleType | None) -> list[str]:
    folders = [os.path.abspath(root)]
    path = _file_of(entry)
    if path is not None:
        folder = os.path.dirname(path)
        for _ in (getattr(entry, "__package__", None) or "").split(".")[1:]:
            folder = os.path.dirname(folder)  # that of the outermost package
        if not _is_foreign(folder):
            folders.append(folder)
    return folders


def _own_files(folders: list[str], entry: ModuleType | None) -> dict[str, str]:
    """Return the files by their path relative to the first folder that holds them.

    Not the script of a program whose functions are given: its call of `optimize` changes, and they have own digests.
    """
    found = {}
    for name, module in list(sys.modules.items()):
        path = _file_of(module)
        if path is None or name.partition(".")[0] in (_OWN_PACKAGE, "__main__"):
            continue
        inside = next((inside for inside in (_inside(folder, path) for folder in folders) if inside), None)
        if inside is not None:
            found[inside] = path
        elif module is entry:  # installed, but still what this is about
            found[os.path.basename(path)] = path
    return found


def _file_of(module: Any) -> str | None:
    if not issubclass(type(module), ModuleType):  # a library of cffi has the class of a module and no `__dict__`
        return None
    # Without `__getattr__` of the module, which may import lazily.
    file = object.__getattribute__(module, "__dict__").get("__file__")
    return os.path.abspath(file) if isinstance(file, str) else None


def _inside(folder: str, path: str) -> str | None:
    """Return the path from the folder to the file; None if it is elsewhere, or in a foreign folder."""
    above = folder.rstrip(os.sep) + os.sep
    if not path.startswith(above):
        return None
    parts = path[len(above) :].split(os.sep)
    if any(_is_foreign(os.path.join(folder, *parts[:depth])) for depth in range(1, len(parts))):
        return None
    return "/".join(parts)


@functools.lru_cache(maxsize=None)
def _is_foreign(folder: str) -> bool:
    return (
        os.path.basename(folder) in _INSTALLED
        or os.path.realpath(folder) == _STANDARD_LIBRARY
        or os.path.isfile(os.path.join(folder, _ENVIRONMENT))
    )


class Config:
    """The settings of the server that the worker needs."""

    def __init__(self, given: dict[str, Any]) -> None:
        """Read it.

        A program in the server's own process has digests of its `functions` and their `data` by name, and a DSPy
        program there is given as objects in place of dotted paths, and may have `rows` that are objects, by split.
        """
        self.root: str = given["root"]
        self.kind: str = given["kind"]
        self.program: str | None = given["program"]
        self.adapter: str | None = given["adapter"]
        self.adapter_args: dict[str, Any] = given["adapter_args"]
        self.seed_candidate: dict[str, str] | None = given["seed_candidate"]
        self.name: str | None = given["name"]
        self.version: str | None = given["version"]
        self.metric: str | None = given["metric"]
        self.inputs: list[str] | None = given["inputs"]
        self.rows: dict[str, list[Any]] = given.get("rows", {})
        self.saved_program: str | None = given["saved_program"]
        self.field_descriptions: bool = given["field_descriptions"]
        self.demos: bool = given["demos"]
        self.add_format_failure_as_feedback: bool = given["add_format_failure_as_feedback"]
        self.seed: int = given["seed"]
        self.reflection_lm: str | None = given["reflection_lm"]
        self.instruction_proposer: str | None = given["instruction_proposer"]
        self.warn_on_score_mismatch: bool = given["warn_on_score_mismatch"]
        self.concurrency: int = given["concurrency"]
        self.threads: int = given["threads"]
        self.prefers_forks: bool = given["prefers_forks"]
        self.trust_results: bool = given["trust_results"]
        self.model_hosts: list[str] = given["model_hosts"]
        self.example_timeout_s: float | None = given["example_timeout_s"]
        self.max_trace_bytes: int = given["max_trace_bytes"]
        self.digested: dict[str, Any] = given["digested"]
        self.functions: dict[str, str] = given.get("functions", {})
        self.jailed: bool = given["jailed"]

    def limit_s(self, params: dict[str, Any]) -> float | None:
        """Return the seconds that each example of a request may run: the setting, or less if it asks so."""
        asked = (params.get("_meta") or {}).get("example_timeout_s")
        limits = [limit for limit in (self.example_timeout_s, asked) if limit is not None]
        return min(limits) if limits else None

    def calls(self, *, is_batch: bool = False) -> ExampleCalls:
        """Return a new record of the calls of one example, or of a batch."""
        return ExampleCalls(self.model_hosts, is_batch=is_batch, takes_strays=not self.functions)

    def identity(self, entry: ModuleType | None, **more: Any) -> dict[str, Any]:
        """Return the `digest` of the loaded program, its settings and further JSON that changes it, and its `files`."""
        code = {name: each for name, each in self.functions.items() if not name.startswith("data ")}
        digest, files = _digests_of({**self.digested, "functions": code, **more}, self.root, entry)
        return {"digest": digest, "files": {**files, **self.functions}}


def import_program(target: str, root: str) -> ModuleType:
    """Import the module named by `target`: dotted, or the path of a file. Its own errors pass."""
    sys.path.insert(0, root)
    if not (target.endswith(".py") or os.sep in target):
        return importlib.import_module(target)
    path = os.path.join(root, target)
    if not os.path.isfile(path):
        raise ProgramProblem("import", _no_program(path))
    folder = os.path.dirname(os.path.abspath(path))
    if folder != os.path.abspath(root):
        sys.path.insert(1, folder)
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules or not name.isidentifier():
        name = "program_" + "".join(part if part.isalnum() else "_" for part in name)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ProgramProblem("import", "%s is not a Python file; give another program as `command`" % path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _no_program(path: str) -> str:
    if os.path.isdir(path):
        return "%s is a folder: name the program's file in it" % path
    folder, name = os.path.split(path)
    near = difflib.get_close_matches(name, os.listdir(folder) if os.path.isdir(folder) else [], n=1)
    return "there is no file %s" % path + "".join(" (did you mean %s?)" % each for each in near)


def import_adapter(target: str, arguments: dict[str, Any], root: str) -> tuple[Any, dict[str, Any]]:
    """Return the adapter's factory, and its arguments with each `{"$import": "pkg.module:name"}` resolved."""
    sys.path.insert(0, root)
    return _import_object(target), {name: _resolved(value) for name, value in arguments.items()}


def import_dotted(target: Any) -> Any:
    """Return the object named `pkg.module.Name` or `pkg.module:Name`; one that is no text is itself meant."""
    if not isinstance(target, str):
        return target
    return _import_object(target if ":" in target else ":".join(target.rsplit(".", 1)))


def _import_object(target: str) -> Any:
    module_name, _, path = target.partition(":")
    if not path:
        raise ProgramProblem("import", "%r is not of the form pkg.module:Name" % target)
    found: Any = importlib.import_module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise ProgramProblem("import", "%s has no %r" % (module_name, path))
        found = getattr(found, part)
    return found


def _resolved(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"$import"}:
            return _import_object(value["$import"])
        return {name: _resolved(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_resolved(member) for member in value]
    return value


def seed_from(*sources: Any, missing: str) -> dict[str, str]:
    """Return the first source that is not None: a mapping of texts, or a function that returns one.

    `missing`: what to do if there is none.
    """
    for source in sources:
        if source is not None:
            seed = source() if callable(source) else source
            break
    else:
        raise ProgramProblem(
            "seed_candidate", "there is no seed candidate, a mapping from component name to text: " + missing
        )
    if not isinstance(seed, dict) or not seed:
        raise ProgramProblem("seed_candidate", "`seed_candidate` must be a mapping with at least one component")
    for name, text in seed.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ProgramProblem("seed_candidate", "`seed_candidate`[%r] must be text, under a name" % (name,))
        if not is_unicode(name + text):
            raise ProgramProblem("seed_candidate", "`seed_candidate`[%r] has half of a surrogate pair" % (name,))
    return seed
