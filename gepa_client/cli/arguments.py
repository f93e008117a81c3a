"""Arguments, flags and exit statuses of several commands; the statuses of a run are in `views.final_summary`."""

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

STILL_RUNNING = 1
"""The run had not stopped when the wait for it was over."""

DECLINED = 1
"""The user answered no to a question of the command."""

USAGE = 2
"""The command was used wrongly, or asks for something impossible."""

PAUSED = 3
"""The infrastructure failed, or another command paused the run; the same command can succeed later."""

NOT_MET = 4
"""The certificate lacks the verdict that `--require` asks for."""

STOPPED = 130
"""The user stopped the command, or cancelled its run."""
