"""The application: its commands, each loaded only if it is named, so that `--help` starts at once."""

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from evolverpc_common.installation import stated_version

HELP = """Improve any program that speaks the evaluation protocol, in any language, with GEPA.

Give the server's token in the environment as GEPA_TOKEN, or in a file with --token-file.
"""

COMMANDS = {
    "optimize": "Improve a program; write its best candidate and a report.",
    "resume": "Continue a stopped run: `resume last`.",
    "check": "Try a server on a few rows; estimate a run.",
    "call": "Make one call and print the answer.",
    "conformance": "Test a server against the contract.",
    "runs": "List the runs of this folder, or of a store.",
    "show": "Show a run: scores, cost, what improved it.",
    "watch": "Show a run on a live page in the browser.",
    "replay": "Replay a run from its record; call no server.",
    "steer": "Steer a run: a text, a hint, a budget, a pin.",
    "pause": "Stop a run; `resume` continues it.",
    "cancel": "End a run; keep what it found.",
    "fork": "Start a new run from a point of another.",
    "export": "Write a run to one JSON file.",
    "import": "Import a run that was exported.",
    "verify": "Check that a run's certificate follows from its record.",
    "rescore": "Score the recorded outputs of a run again.",
    "mutate": "Change a program's code once, by hand.",
    "sandboxes": "List sandboxes; end those left behind.",
    "branches": "List a run's code; diff, check out or delete it.",
    "demo-model": "Serve a scripted stand-in for a language model.",
}
ELSEWHERE = {"serve": "Serve a program to optimizers.", "service": "Optimize many people's programs over HTTP."}
"""Commands of other packages, which `evolverpc_common.console_scripts` starts."""

MEANT = {
    **dict.fromkeys(("report", "result", "results", "status", "info", "log", "logs", "describe"), "show"),
    **dict.fromkeys(("list", "ls", "history"), "runs"),
    **dict.fromkeys(("run", "start", "improve", "evolve"), "optimize"),
    **dict.fromkeys(("continue", "restart"), "resume"),
    **dict.fromkeys(("page", "dashboard", "ui", "follow"), "watch"),
    **dict.fromkeys(("test", "validate", "doctor"), "check"),
    "stop": "pause",
    "kill": "cancel",
    "diff": "branches",
}
"""Words that users try -> the command that they mean."""

WITH_SETTINGS = ("optimize", "resume", "check", "fork")
"""Commands whose flags are settings; their own code is imported when they run, not for their help."""

WIDE = {"max_content_width": 120}

MODULES = {"import": "import_", "demo-model": "demo_model"}
"""Modules of commands whose name is not one of a module."""


class _Commands(TyperGroup):
    """The commands; a word in `MEANT` is refused with the command that is meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        meant = MEANT.get(args[0])
        if meant is not None:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{meant}' ({COMMANDS[meant].lower().rstrip('.')})?")
        return super().resolve_command(ctx, args)


def build(loaded: str | None) -> typer.Typer:
    """Build the application; only the command `loaded` has its code and flags, the others have a line of help."""
    app = typer.Typer(
        cls=_Commands,
        help=HELP,
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

    for name, summary in {**ELSEWHERE, **COMMANDS}.items():
        if name == loaded:
            own = MODULES.get(name, name)
            if name in WITH_SETTINGS:
                flags = import_module("gepa_client.cli.flags")
                app.command(name, short_help=summary, cls=flags.COMMAND, context_settings=WIDE)(flags.declared(name))
                continue
            module = import_module(f"gepa_client.cli.commands.{own}")
            if (group := getattr(module, "APP", None)) is not None:  # a command with commands of its own
                app.add_typer(group, name=name, short_help=summary)
                continue
            cls = getattr(module, "COMMAND", None)  # of a command that has flags of settings beside its own
            app.command(name, short_help=summary, cls=cls)(getattr(module, own))
        else:
            app.command(name, help=summary)(_not_loaded)
    return app


def main() -> None:
    """Entry point of the console script."""
    arguments = sys.argv[1:]
    named = next((argument for argument in arguments if not argument.startswith("-")), None)
    build(named)(prog_name="evolverpc")


def _not_loaded() -> None:
    raise AssertionError("main() loads the command that is named")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(stated_version())
        raise typer.Exit
