"""`evolverpc export RUN`, `evolverpc import FILE`: all that a store has of a run, as one JSON file for another one."""

import os
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from evolverpc_common.display_text import command, plain_json
from gepa_client.cli.arguments import AsJson, RunName, StoreUrl, read_object
from gepa_client.cli.commands.store_access import open_cli_run, open_cli_store, run_as_json
from gepa_client.run.export_import import export_run, import_run
from gepa_client.views.console import echo, echo_next, make_console, print_json, refuse, safe_line

STDOUT = "-"


def export(
    run: RunName,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to (default RUN.json; - for stdout).")
    ] = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write a run to one JSON file: its record, its journal, its candidates. An existing file is not overwritten."""
    with open_cli_run(store, run) as (kept, found):
        path = Path(output or f"{found.id}.json")
        if output != STDOUT and path.exists():
            refuse(f"{path} is there already, and nothing is written over: give another --output")
        pieces = chain(export_run(kept, found.id), ["\n"])
        if output == STDOUT:
            for piece in pieces:
                sys.stdout.write(plain_json(piece))
            sys.stdout.flush()
            return
        try:
            size = _write(path, pieces)
        except FileExistsError:
            refuse(f"{path} is there already, and nothing is written over: give another --output")
        except OSError as error:
            refuse(f"{path} cannot be written: {error.strerror or error}")
    if as_json:
        print_json({"run": found.id, "file": str(path), "bytes": size})
        return
    console = make_console()
    echo(console, f"{safe_line(found.id)} is in {safe_line(str(path))} ({size:,} bytes), with your rows and outputs")
    echo(console, f"next, elsewhere: {safe_line(f'evolverpc import {path.name}')}")


def _write(path: Path, pieces: Iterable[str]) -> int:
    """Write a new file, readable by its owner alone, completely or not at all; return its size in bytes."""
    size = 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for piece in pieces:
                size += file.write(piece.encode("utf-8", "backslashreplace"))
    except BaseException:
        path.unlink()
        raise
    return size


def import_(
    file: Annotated[Path, typer.Argument(help="What `evolverpc export` wrote.")],
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take in a run that `evolverpc export` wrote; an existing run of the same id is never replaced.

    Its results and the addresses of its servers are not imported: name a server when you resume it. It gets a folder
    here.
    """
    document = read_document(file)
    with open_cli_store(store, create=True) as kept:
        run = import_run(kept, document)
        candidates = len(kept.candidates(run.id))
    if as_json:
        print_json(run_as_json(run) | {"candidates": candidates})
        return
    console = make_console()
    echo(console, f"{safe_line(run.id)} is here: {safe_line(run.status)}, {candidates} candidates")
    following = (
        command("resume", run.id, "URL", store=store)
        if run.status == "paused"
        else command("show", run.id, store=store)
    )
    echo_next(console, following)


def read_document(file: Path) -> dict[str, Any]:
    """Return the JSON of an exported run; end the command if there is none."""
    return read_object(file, "a run that `evolverpc export` wrote", parse_constant=_no_number)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
