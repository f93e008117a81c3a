"""Arguments and flags of several commands, and the files that they name."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from gepa_client.errors import unreadable
from gepa_client.views.console import refuse

RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="Its id, its name, any part of them that no other run has, or `last`.")
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="FILE|URL", help="Where runs are kept (default GEPA_STORE, else runs/evolverpc.db)."
    ),
]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File that holds the server's token; else GEPA_TOKEN is read.")
]
AllowInsecure = Annotated[bool, typer.Option("--allow-insecure", help="Allow plain http to other machines.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def read_text(file: Path) -> str:
    """Return the text of a file with its line ends, as a diff of a file with CRLF needs; end the command if unread."""
    try:
        return file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        refuse(unreadable(file, error))


def read_object(file: Path, what: str, **hooks: Any) -> dict[str, Any]:
    """Return the JSON object in a file; end the command if it is none. `what`: it should be. `hooks`: of `json`."""
    try:
        found = json.loads(read_text(file), **hooks)
    except ValueError as error:
        refuse(f"{file}: not {what}: {error}")
    except RecursionError:
        refuse(f"{file}: not {what}: it is nested too deep")
    if not isinstance(found, dict):
        refuse(f"{file}: not {what}")
    return found
