"""`gepa-client import FILE`: takes in a run that `export` wrote, perhaps on another machine."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from gepa_client.causes import unreadable
from gepa_client.cli.console import make, safe_line, say
from gepa_client.cli.stored import AsJson, StoreUrl, command, next_command, opened, print_json, refuse, run_as_json
from gepa_client.journal.transfer import import_run


def import_(
    file: Annotated[Path, typer.Argument(help="What `gepa-client export` wrote.")],
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take in a run that `gepa-client export` wrote; a run of the same id is never replaced.

    Its results stay where they are: when it is resumed it gets a folder of its own here.
    """
    document = _without_folder(_read(file))
    with opened(store, create=True) as kept:
        run = import_run(kept, document)
        candidates = len(kept.candidates(run.id))
    if as_json:
        print_json(run_as_json(run) | {"candidates": candidates})
        return
    console = make()
    say(console, f"{safe_line(run.id)} is here: {safe_line(run.status)}, {candidates} candidates")
    following = next_command(run, store) if run.status == "paused" else command("show", run.id, store=store)
    say(console, f"next: {safe_line(following)}")


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        refuse(unreadable(file, error))
    except ValueError as error:
        refuse(f"{file}: not JSON: {error}")
    if not isinstance(document, dict):
        refuse(f"{file}: not a run that `gepa-client export` wrote")
    return document


def _without_folder(document: dict[str, Any]) -> dict[str, Any]:
    """The run without the folder of its results, which belongs to the run that was exported, perhaps elsewhere."""
    run = document.get("run")
    if not isinstance(run, dict) or "output" not in run:
        return document
    config = run.get("config")
    told = {"config": {**config, "output": None}} if isinstance(config, dict) and "output" in config else {}
    return {**document, "run": {**run, **told, "output": None}}
