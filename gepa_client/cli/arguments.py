"""Arguments and flags that several commands share."""

from typing import Annotated

import typer

RunName = Annotated[str, typer.Argument(metavar="RUN", help="Its id, the beginning of it, its name, or `last`.")]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="FILE|URL", help="Where runs are kept (default GEPA_STORE, else runs/evolverpc.db)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
