"""Optimize a program, read and write its candidates; this file alone, copied beside a program, does the latter."""

import json
import os
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evolverpc.optimization import Candidate, Diff, OptimizeError, Result, optimize

__all__ = [
    "Candidate",
    "CandidateError",
    "Diff",
    "OptimizeError",
    "Result",
    "load_candidate",
    "optimize",
    "save_candidate",
]

_FILE = "best_candidate.json"
_RUNS = Path("runs")
_ADDED = "added_components"
_OF_CODE = ("git_branch", _ADDED)


_OF_OPTIMIZATION = ("Candidate", "Diff", "OptimizeError", "Result", "optimize")


def __getattr__(name: str) -> Any:
    """Import what optimizes when it is first used: to load a result needs the standard library alone."""
    if name not in _OF_OPTIMIZATION:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module("evolverpc.optimization"), name)
    except ModuleNotFoundError as error:
        needed = "run pip install '.[server,client]' in the folder of evolverpc"
        raise ModuleNotFoundError(f"evolverpc.{name} needs its packages ({error}): {needed}") from error


def __dir__() -> list[str]:
    """Return the public names, also of what is not imported yet."""
    return [*__all__]


class CandidateError(ValueError):
    """A candidate cannot be used; the message names the file, what is wrong with it and what to give instead."""


def load_candidate(path: str | Path, components: Iterable[str] | None = None) -> dict[str, str]:
    """Return the texts of a candidate, by component.

    `path`: a run's `best_candidate.json`, or the folder of the run that holds it. `components`: the names that the
    candidate must have, neither more nor fewer, such as the program's `seed_candidate`.

    Of a run that changed code, the texts that code changes added are among them, and the name of the commit is not.

    Raises:
        CandidateError: there is no such file (`last` and ids of runs are none), it is no candidate, or it has other
            components.
    """
    path = Path(path)
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
        _compare(path, texts, set(components))
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


def _missing(path: Path) -> str:
    in_runs = _RUNS / path
    meant = f"; did you mean {in_runs}?" if in_runs.is_dir() else ""
    return (
        f"{path}: there is no such file or folder in {Path.cwd()}{meant}; give the folder of a run, which "
        f"`gepa-client show last` prints as `results in`, or the {_FILE} in it"
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


def _compare(path: Path, texts: dict[str, str], components: set[str]) -> None:
    missing, extra = sorted(components - set(texts)), sorted(set(texts) - components)
    faults = [f"lacks {', '.join(missing)}"] if missing else []
    faults += [f"has {', '.join(extra)} besides"] if extra else []
    if faults:
        raise CandidateError(
            f"{path}: the candidate {' and '.join(faults)}: it is of another program, or of another version of it"
        )
