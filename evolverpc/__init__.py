"""Optimize a program, report its steps, read and write its candidates.

This file alone, copied beside a program, does all but the first.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evolverpc.optimization import OptimizeError, optimize
    from evolverpc.result import Diff, KeptCandidate, Result

__all__ = [
    "CandidateError",
    "Diff",
    "KeptCandidate",
    "OptimizeError",
    "ParseFailure",
    "Result",
    "load_candidate",
    "optimize",
    "save_candidate",
    "step",
    "tool",
]

_FILE = "best_candidate.json"
_RESULT = "result.json"
_RUNS = Path("runs")
_LAST = Path("last")
_ADDED = "added_components"
_OF_CODE = ("git_branch", _ADDED)


_SERVERS = ("_evolverpc_worker.spans", "rpc_server.worker.spans")
"""The modules that know the example that runs here: in a process of the server, and in that of `optimize`."""

_HEAVY = {
    **dict.fromkeys(("OptimizeError", "optimize"), "evolverpc.optimization"),
    **dict.fromkeys(("Diff", "KeptCandidate", "Result"), "evolverpc.result"),
}
"""The modules of the names that need more than the standard library."""


def __getattr__(name: str) -> Any:
    """Import what optimizes when it is first used: to load a result needs the standard library alone."""
    if name not in _HEAVY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HEAVY[name]), name)
    except ModuleNotFoundError as error:
        needed = "run pip install '.[server,client]' in the folder of evolverpc"
        raise ModuleNotFoundError(f"evolverpc.{name} needs its packages ({error}): {needed}") from error


def __dir__() -> list[str]:
    """Return the public names, also of what is not imported yet."""
    return [*__all__]


class CandidateError(ValueError):
    """A candidate cannot be used; the message names the file, what is wrong with it and what to give instead."""


class ParseFailure(Exception):
    """Raise it within a step if a model's answer cannot be parsed: reflection reads the answer and what was expected.

    `raw`: the answer. `expected`: the structure that it should have, as text for the reflection model.
    """

    is_recorded = False

    def __init__(self, raw: str, expected: str, message: str = "the answer could not be parsed") -> None:
        super().__init__(message)
        self.raw, self.expected = raw, expected


class _UnrecordedStep:
    """A step outside of an example."""

    outputs: Any = None
    usage: Any = None

    def __enter__(self) -> _UnrecordedStep:
        return self

    def __exit__(self, *_: object) -> None:
        """Record nothing."""


def step(component: str, function: Callable[..., Any] | None = None, /, **inputs: Any) -> Any:
    """Return `function(**inputs)`, run as a step of the component; awaitable if the function is async.

    Without a function, return the step, for a `with` block that sets its `outputs`, and its `usage` if that is known.
    `inputs`: what goes into it, by name. Outside of an example that a server runs, nothing is recorded.
    """
    return _step("step", component, function, inputs)


def tool(name: str, function: Callable[..., Any] | None = None, /, **inputs: Any) -> Any:
    """As `step`, for a step without a component, such as the call of a tool."""
    return _step("tool", name, function, inputs)


def _step(kind: str, title: str, function: Callable[..., Any] | None, inputs: dict[str, Any]) -> Any:
    for server in filter(None, map(sys.modules.get, _SERVERS)):
        if (trace := server.trace_here(title)) is not None:
            return getattr(trace, kind)(title, function, **inputs)
    return _UnrecordedStep() if function is None else function(**inputs)


def load_candidate(path: str | Path, components: object = None) -> dict[str, str]:
    """Return the texts of a candidate, by component.

    `path`: a run's `best_candidate.json`, or the folder of the run that holds it; `last` is the newest folder in
    `runs`, unless a file or folder has this name. `components`: the names that the candidate must have, neither more
    nor fewer; or the program's `seed_candidate`; or the program, as a module or what
    else `optimize` takes. If the run's `result.json` is beside the file, a seed with other texts than the run's is
    warned of, for a seed may have been improved since, and a program with another `version` is refused.

    Of a run that changed code, the texts that code changes added are among them, and the name of the commit is not.

    Raises:
        CandidateError: there is no such file (ids of runs are none), it is no candidate, or it is of
            another program: it has other components, or is of another version.
    """
    path = Path(path)
    if path == _LAST and not path.exists():
        path = _newest()
    if path.is_dir():
        if not (path / _FILE).is_file():
            raise CandidateError(f"{path} holds no {_FILE}: give the folder of one run, such as runs/TIME")
        path /= _FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise CandidateError(_missing(path)) from None
    except OSError as error:
        raise CandidateError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise CandidateError(f"{path}: not JSON: {error}") from None
    texts = _texts(path, found)
    if _ADDED in texts:
        try:
            added = json.loads(texts[_ADDED])
        except (ValueError, RecursionError) as error:
            raise CandidateError(f"{path}: `{_ADDED}` is not JSON: {error}") from None
        texts = {**_texts(path, added), **texts}
    texts = {name: text for name, text in texts.items() if name not in _OF_CODE}
    if components is not None:
        _compare(path, texts, components)
    return texts


def save_candidate(path: str | Path, candidate: Mapping[str, str]) -> None:
    """Write the texts of a candidate, by component, to a file that `load_candidate` reads, also that of TypeScript.

    Raises:
        CandidateError: it is not a mapping of texts. OSError: it cannot be written.
    """
    path = Path(path)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps(_texts(path, dict(candidate)), indent=2) + "\n", encoding="ascii")
    partial.replace(path)


def _newest() -> Path:
    """Return the file of the newest run in `runs` that has one."""
    files = [(file.stat().st_mtime_ns, file) for file in _RUNS.glob(f"*/{_FILE}")]
    if not files:
        raise CandidateError(f"last: no run in {Path.cwd() / _RUNS} has a {_FILE}: give the folder of a run")
    return max(files)[1]


def _missing(path: Path) -> str:
    in_runs = _RUNS / path
    meant = f"; did you mean {in_runs}?" if in_runs.is_dir() else ""
    return (
        f'{path}: there is no such file or folder in {Path.cwd()}{meant}; give "last", or the folder of a run, which '
        f"`evolverpc show last` prints as `results in`, or the {_FILE} in it"
    )


def _texts(path: Path, found: Any) -> dict[str, str]:
    if isinstance(found, dict) and isinstance(found.get("candidates"), list):
        raise CandidateError(f"{path} is the whole result of a run: give {path.parent / _FILE}")
    if not isinstance(found, dict):
        raise CandidateError(f"{path}: not a candidate: a JSON object of texts by component is expected")
    for name, text in found.items():
        if not isinstance(text, str):
            raise CandidateError(f"{path}: not a candidate: `{name}` is {type(text).__name__}, not a text")
    return found


def _compare(path: Path, texts: dict[str, str], expected: Any) -> None:
    """Raise `CandidateError` if the candidate is of another program than the expected one; warn of another seed."""
    seed, version = _seed_and_version(expected)
    if hasattr(seed, "named_predictors"):
        raise CandidateError(f"{path}: a DSPy program loads what `finalize` wrote: program.load(FILE)")
    components, run = set(seed), _run_beside(path)
    missing, extra = sorted(components - set(texts)), sorted(set(texts) - components)
    faults = [f"lacks {', '.join(missing)}"] if missing else []
    faults += [f"has {', '.join(extra)} besides"] if extra else []
    before = run["program"].get("version")
    if None not in (before, version) and str(version) != before:
        faults.append(f'was made for the program\'s version "{before}", not "{version}"')
    if faults:
        raise CandidateError(
            f"{path}: the candidate {' and '.join(faults)}: it is of another program, or of another version of it"
        )
    started = run["seed"] if isinstance(seed, Mapping) else {}
    if changed := [name for name, text in started.items() if name in components and text != seed[name]]:
        warnings.warn(
            f"{path}: the run of this candidate started from other texts of {', '.join(changed)} than the program's "
            "seed has: if the program has changed since, optimize it again",
            stacklevel=3,
        )


def _seed_and_version(expected: Any) -> tuple[Any, Any]:
    """Return the seed candidate of a program, and its version if it declares one; what is no program as it is."""

    def part(name: str) -> Any:
        return expected.get(name) if isinstance(expected, Mapping) else getattr(expected, name, None)

    seed = part("seed_candidate")
    if seed is None or isinstance(seed, str):  # the latter is a component of this name
        return expected, None
    version = part("version")
    return seed() if callable(seed) else seed, part("__version__") if version is None else version


def _run_beside(path: Path) -> dict[str, dict[str, Any]]:
    """Return the program and the seed of the run whose result is beside the file; empty if there is none."""
    result = path.with_name(_RESULT)
    found = json.loads(result.read_text(encoding="utf-8")) if result.is_file() else {}
    return {"program": found.get("program", {}), "seed": next(iter(found.get("candidates", [])), {})}
