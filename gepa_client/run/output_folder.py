"""The output folder of a run: complete files under fixed names."""

import io
import json
import posixpath
import tarfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evolverpc_common.display_text import one_line
from evolverpc_common.files import DEEPEST, replace_file

BEST_CANDIDATE = "best_candidate.json"
RESULT = "result.json"
CERTIFICATE = "certificate.json"
CONFIG = "config.json"
EVENTS = "events.jsonl"
LOG = "run.log"
CONNECTIONS = "connections.jsonl"
"""Connections of programs in sandboxes to allowed hosts."""

REPORT = "report.html"
RUNS = Path("runs")
OWN = 0o700
ARTIFACTS = "artifacts"
"""The folder of a program's own files, which its sandbox had."""

ARTIFACT_FILES = 1000
NO_PLAIN_FILE = f"no plain file within its folder and {DEEPEST} further ones"
NAME_SHOWN = 120


@dataclass
class HostTotals:
    """What all connections to one host and port have carried. `failed`: connections that did not reach it."""

    connections: int = 0
    failed: int = 0
    sent: int = 0
    received: int = 0


def host_totals(folder: Path) -> dict[str, HostTotals]:
    """Return what the sandboxes of a run's folder reached, by `host:port`; empty if no sandbox connected to a host.

    Each process that drove the run has appended its totals.

    Raises:
        OSError: the file cannot be read. ValueError: it was changed; the message names it.
    """
    file, found = folder / CONNECTIONS, dict[str, HostTotals]()
    if not file.is_file():
        return found
    try:
        for text in file.read_text(encoding="utf-8").splitlines():
            if (host := (entry := json.loads(text)).pop("host", None)) is not None:
                before, more = asdict(found.get(host, HostTotals())), HostTotals(**entry)
                found[host] = HostTotals(**{name: before[name] + value for name, value in asdict(more).items()})
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is not as it was written: {error}") from None
    return found


def create(path: Path) -> Path:
    """Make the folder; return its absolute path.

    Raises:
        FileExistsError: it exists and is not empty: a run never overwrites another's results.
        OSError: it cannot be made.
    """
    found = open_again(path)
    refuse_results(found)
    return found


def open_again(path: Path) -> Path:
    """Make the folder unless it exists, readable by its owner alone, as it holds rows; return its absolute path."""
    path.mkdir(mode=OWN, parents=True, exist_ok=True)
    return path.resolve()


def open_new(run_id: str) -> Path:
    """Make `runs/RUN` for a run without a folder, or a numbered one if a run of another store uses that name.

    Returns its absolute path.
    """
    names = (run_id, *(f"{run_id}-{number}" for number in range(2, 10_000)))
    return open_again(next(path for name in names if not _used(path := RUNS / name)))


def _used(path: Path) -> bool:
    """Return whether a run was driven there; one that was refused leaves only its log."""
    return any((path / name).exists() for name in (CONFIG, EVENTS, RESULT, BEST_CANDIDATE))


def refuse_results(path: Path) -> None:
    """Raise FileExistsError if the folder exists and is not empty."""
    if path.exists() and any(path.iterdir()):
        raise FileExistsError(f"{path} is not empty; results of another run are never written over")


def write_json(path: Path, value: Any, default: Callable[[object], Any] | None = None) -> None:
    """Write JSON as a complete file; keys keep their order. `default`: as of `json.dumps`."""
    replace_file(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False, default=default) + "\n")


def remove_reports(path: Path) -> None:
    """Remove the certificate and the reports of an earlier end of the run; they are written anew after each end.

    Their absence shows that the command which ended the run was killed before it wrote them.
    """
    for name in (CERTIFICATE, REPORT):
        (path / name).unlink(missing_ok=True)


def unpack_artifacts(content: bytes, folder: Path) -> tuple[list[str], list[str]]:
    """Write the files of an untrusted tar below the folder; return their names, and sentences about what was left out.

    Links, devices, sparse files (a few bytes may stand for terabytes), paths that leave the folder, and files beyond
    `ARTIFACT_FILES` are left out.

    Raises:
        OSError: a file cannot be written.
    """
    copied: list[str] = []
    left_out: list[str] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for entry in archive:
                name = posixpath.normpath(entry.name)
                is_inside = not name.startswith(("/", "../")) and name != ".." and "\0" not in name
                if not entry.isfile() or entry.issparse() or not is_inside or name.count("/") > DEEPEST:
                    left_out.append(f"{one_line(name, NAME_SHOWN)} ({NO_PLAIN_FILE})")
                elif len(copied) == ARTIFACT_FILES:
                    left_out.append(f"what is beyond {ARTIFACT_FILES} files")
                    break
                elif (file := archive.extractfile(entry)) is not None:
                    data = file.read()
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    (folder / name).write_bytes(data)
                    copied.append(name)
    except (tarfile.TarError, EOFError):
        left_out.append("what is beyond the largest size of all together")
    except ValueError:  # `tarfile` lets it pass for numbers in a malformed header
        left_out.append("what follows a malformed header")
    return copied, left_out
