"""The command line: its subcommands, each imported when it is used."""

import typer

app = typer.Typer(name="gepa-service", no_args_is_help=True, add_completion=False)


@app.callback()
def about() -> None:
    """Optimize many people's programs over HTTP."""


def main() -> None:
    """Run the command."""
    app()
