"""`evolverpc import FILE`: take in a run that `export` wrote, possibly on another machine."""

import json
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from evolverpc_common.printed_commands import command
from gepa_client.cli.arguments import AsJson, StoreUrl
from gepa_client.cli.commands.store_access import open_cli_store, run_as_json
from gepa_client.errors import unreadable
from gepa_client.run.transfer import import_run
from gepa_client.views.console import echo, echo_next, make_console, print_json, refuse, safe_line


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
    try:
        document = json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_number)
    except (OSError, UnicodeDecodeError) as error:
        refuse(unreadable(file, error))
    except ValueError as error:
        refuse(f"{file}: not JSON: {error}")
    except RecursionError:
        refuse(f"{file}: not a run that `evolverpc export` wrote: it is nested too deep")
    if not isinstance(document, dict):
        refuse(f"{file}: not a run that `evolverpc export` wrote")
    return document


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
