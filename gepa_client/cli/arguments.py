"""Arguments and flags of several commands."""

from pathlib import Path
from typing import Annotated

import typer

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


def access_flags(token_file: object, *, allow_insecure: object) -> list[str]:
    """Return these two flags as the words of a command for the same server."""
    words = ["--token-file", str(token_file)] if token_file else []
    return [*words, "--allow-insecure"] if allow_insecure else words
