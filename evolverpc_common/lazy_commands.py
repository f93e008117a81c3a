"""An application of commands, each loaded only if it is named, so that `--help` starts at once."""

import keyword
import signal
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup

from evolverpc_common.installation import stated_version


class _Commands(TyperGroup):
    """Commands that Ctrl-C ends, if nothing of their own handles it."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("stopped by hand", err=True)
            raise typer.Exit(128 + signal.SIGINT) from None


def application(
    help_text: str,
    commands: Mapping[str, str],
    add: Callable[[typer.Typer, str, str], None],
    named: str | None,
) -> typer.Typer:
    """Build an application: `add` adds the command `named` with its code and flags, the others have a line of help.

    `commands`: name -> summary.
    """
    app = typer.Typer(
        cls=_Commands,
        help=help_text,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,  # plain help gives every flag in full, however long its name
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def common(
        version: Annotated[
            bool,
            typer.Option(
                "--version", callback=_print_version, is_eager=True, help="Print version and folder, and exit."
            ),
        ] = False,
    ) -> None:
        pass

    for name, summary in commands.items():
        if name == named:
            add(app, name, summary)
        else:
            app.command(name, help=summary)(_not_loaded)
    return app


def named_command() -> str | None:
    """Return the command that the arguments of this process name."""
    return next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)


def add_module(app: typer.Typer, name: str, summary: str, module: str) -> None:
    """Add a command: the function of its name in the module, or the module's `APP` of commands.

    `COMMAND` of the module: the class of a command that has flags of settings beside its own.
    """
    found = import_module(module)
    if (group := getattr(found, "APP", None)) is not None:
        app.add_typer(group, name=name, short_help=summary)
    else:
        own = getattr(found, name.replace("-", "_") + ("_" if keyword.iskeyword(name) else ""))
        app.command(name, short_help=summary, cls=getattr(found, "COMMAND", None))(own)


def _not_loaded() -> None:
    raise AssertionError("the command that is named is loaded")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(stated_version())
        raise typer.Exit
