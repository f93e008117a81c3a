"""The application: its commands, each loaded only if it is named, so that `--help` starts at once."""

from importlib import import_module

import typer

from evolverpc_common.lazy_commands import add_module, application, named_command

HELP = """Improve the prompts of a program in any language: try changes by GEPA, and keep what scores better.

Begin with `evolverpc serve program.py`, which prints its URL and the file of its token. Then, in another terminal,
`evolverpc check URL --token-file FILE`, and `evolverpc optimize URL --token-file FILE --max-metric-calls 500
--reflection-lm MODEL`; the variable GEPA_TOKEN may hold the token instead. Where a command takes a run, give its id, or
`last` for the newest one. `evolverpc show last` prints how your program loads the best texts of that run. `evolverpc
COMMAND --help` explains a command.
"""

COMMANDS = {
    "optimize": "Improve a program; write its best texts, and how to use them.",
    "resume": "Continue a run that ended early or met its limit.",
    "check": "Try a server on a few rows; estimate what a run costs.",
    "call": "Make one call and print the answer.",
    "conformance": "Test a server against the contract.",
    "runs": "List the runs of this folder, or of a store.",
    "show": "Show a run: scores, cost, best text, what improved it.",
    "watch": "Show a run on a live page in the browser.",
    "replay": "Replay a run from its record; call no server.",
    "steer": "Add a text or a hint to a run; change its limits.",
    "pause": "Interrupt a run; `resume` continues it.",
    "cancel": "End a run for good; keep what it found.",
    "fork": "Start a new run from a point of another.",
    "export": "Write a run to one JSON file.",
    "import": "Import a run that was exported.",
    "verify": "Check that a run's certificate follows from its record.",
    "rescore": "Score the recorded outputs of a run again.",
    "mutate": "Change a program's code once, by hand.",
    "sandboxes": "List sandboxes; end those left behind.",
    "branches": "List a run's code; diff, check out or delete it.",
    "demo-model": "Serve a scripted stand-in for a model; it needs no key.",
}
ELSEWHERE = {"serve": "Serve a program to optimizers.", "service": "Optimize many people's programs over HTTP."}
"""Commands of other packages, which `evolverpc_common.console_scripts` starts."""

WITH_SETTINGS = ("optimize", "resume", "check", "fork")
"""Commands whose flags are settings; their own code is imported when they run, not for their help."""

WIDE = {"max_content_width": 120}

MODULES = {
    **dict.fromkeys(("resume", "replay", "fork"), "resume_replay_and_fork"),
    **dict.fromkeys(("export", "import"), "export_and_import"),
    **dict.fromkeys(("pause", "cancel"), "pause_and_cancel"),
    "demo-model": "demo_model",
}
"""Modules of commands whose name is not their module's."""


def build(named: str | None) -> typer.Typer:
    """Build the application with the command `named`."""
    return application(HELP, {"serve": ELSEWHERE["serve"], **COMMANDS, **ELSEWHERE}, _add, named)


def _add(app: typer.Typer, name: str, summary: str) -> None:
    module = f"gepa_client.cli.commands.{MODULES.get(name, name)}"
    if name in WITH_SETTINGS:
        flags = import_module("gepa_client.cli.command_declarations")
        own, cls = flags.declared(name, module), flags.command_class(name)
        app.command(name, short_help=summary, cls=cls, context_settings=WIDE)(own)
    else:
        add_module(app, name, summary, module)


def main() -> None:
    """Entry point of the console script."""
    build(named_command())(prog_name="evolverpc")
