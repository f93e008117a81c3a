"""The help and the flags of the commands that take settings, without the code that runs them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from evolverpc_common.settings.settings_command import SettingsCommand, settings_command, with_flags
from gepa_client.cli.arguments import AsJson, RunName
from gepa_client.report.calling_program import by_typescript
from gepa_client.settings.run_config import (
    CHECK_REPEATS,
    CHECK_SETTINGS,
    CHECKED_ROWS,
    IDENTITY_SETTINGS,
    MOST_CHECK_REPEATS,
    MOST_CHECKED_ROWS,
    REPLACED,
    SETTINGS,
)

_CONFIG = Annotated[Path | None, typer.Option("--config", "-c", metavar="PATH", help="Settings, as a TOML file.")]
_EVENTS = Annotated[bool, typer.Option("--json", help="Print events as JSON lines, a summary last.")]
_EVENTS_FD = Annotated[
    int | None,
    typer.Option(
        "--events-fd",
        metavar="N",
        min=3,
        help="Write events and summary to file descriptor N; pause if it closes.",
        rich_help_panel="For scripts",
    ),
]
_WATCH = Annotated[
    bool,
    typer.Option(
        "--watch", help="Show the run on a page in the browser while the command works; later, `evolverpc watch` does."
    ),
]
_ONE_OBJECT = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
_VERBOSE = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print what the program wrote while each row ran, too.")
]
_ROWS = Annotated[int, typer.Option(min=1, max=MOST_CHECKED_ROWS, metavar="N", help="Training rows to try.")]
_REPEATS = Annotated[
    int,
    typer.Option(
        min=1, max=MOST_CHECK_REPEATS, metavar="N", help="Evaluations of each row tried: 2 or more show its noise."
    ),
]
_AT = Annotated[int, typer.Option("--at", min=0, metavar="N", help="Entries of its journal to begin with: see `show`.")]
_REQUIRED: Any = ...


def _servers(help_text: str) -> tuple[Any, Any]:
    return Annotated[list[str] | None, typer.Argument(metavar="URL", help=help_text)], None


@dataclass(frozen=True)
class Declared:
    """A command: its help, its own parameters (annotation and default), and the settings it has no flags for.

    `unlisted`: settings that it refuses with the reason, so that the help does not name their flags.
    """

    help: str
    own: Mapping[str, tuple[Any, Any]]
    without: frozenset[str] = frozenset()
    unlisted: frozenset[str] = frozenset()


DECLARED = {
    "optimize": Declared(
        """Improve the texts of the program behind one server or several; write its best candidate and a report.

        A candidate is one set of texts; the seed is the program's own. A metric call runs a candidate on one row and
        scores the output.

        Name running servers (`evolverpc serve program.py` starts one), or have them started in sandboxes with --repo,
        on this machine or, with --engine, on the machines of a Ray cluster. To end the run, give at least one limit,
        such as --max-metric-calls 500; a perfect score on every validation row ends it too, unless --past-perfect is
        given.
        Every result is recorded as it arrives: `evolverpc resume last` continues a run that ended early, and with a
        larger limit one that met its limit.

        Each proposal that improves the score of a minibatch is scored on every validation row, which costs most of a
        run: with many rows, --validation race first compares it with the best candidates on a sample of 40 rows or
        more. Servers run as many examples at the same time as they allow (`concurrency` of `serve`); --concurrency
        limits a run to fewer.

        Every flag is also a key of the --config file and a variable: --max-seconds is max_seconds and
        GEPA_MAX_SECONDS. Messages name it by its key. A flag has precedence over a variable, a variable over the file.

        Exit status: 0 complete, 1 failed, 2 refused before it began, 3 paused because the infrastructure failed or on
        request, 4 complete but not shown to be better, with --require improved, 130 stopped by Ctrl-C or cancelled.
        What a run found is kept in every case.
        """,
        {
            "url": _servers("Servers that run already, such as http://127.0.0.1:8000."),
            "config": (_CONFIG, None),
            "watch": (_WATCH, False),
            "json_events": (_EVENTS, False),
            "events_fd": (_EVENTS_FD, None),
        },
    ),
    "resume": Declared(
        """Continue a run that paused, failed, was cancelled or killed; with a larger limit, also a complete one.

        The run's servers must be running, or give the URLs of others; those of --repo are started again. Servers,
        concurrency, limits and deadlines may change. A setting that would make it another run is refused;
        `evolverpc fork` starts another run from there.

        Exit status: as `evolverpc optimize`; 2 if it is refused, 3 if no server or store answers.
        """,
        {
            "run": (RunName, _REQUIRED),
            "url": _servers("Other servers than the run's."),
            "config": (_CONFIG, None),
            "watch": (_WATCH, False),
            "json_events": (_EVENTS, False),
            "events_fd": (_EVENTS_FD, None),
        },
        frozenset({"output", "check"}),
        # arguments of the model that may be secrets are not recorded, and have to be given again
        frozenset({*IDENTITY_SETTINGS, "val_fraction", "test_fraction"}) - {"reflection_lm_kwargs"},
    ),
    "fork": Declared(
        """Begin a new run with the first N entries of another one's journal, with any of its settings changed.

        No recorded call is made, or paid for, again. The rows and the server's description are requested anew.
        """,
        {
            "run": (RunName, _REQUIRED),
            "url": _servers("Other servers than the run's."),
            "at": (_AT, _REQUIRED),
            "as_json": (AsJson, False),
        },
    ),
    "check": Declared(
        """Try a server on a few training rows; report what a run would meet, take, and be able to show.

        Of several servers the others are compared with the first: each evaluates a few rows with the seed.

        Exit status: 0 if a run may start, 1 if it should not or the servers differ, 2 if the server cannot be reached.
        """,
        {
            "url": _servers("The server, or several that are to share a run; may be in the configuration file."),
            "config": (_CONFIG, None),
            "json_output": (_ONE_OBJECT, False),
            "examples": (_ROWS, CHECKED_ROWS),
            "repeats": (_REPEATS, CHECK_REPEATS),
            "verbose": (_VERBOSE, False),
        },
        frozenset(SETTINGS) - {*CHECK_SETTINGS},
    ),
}


def command_class(name: str) -> type[SettingsCommand]:
    """Return the class of a command in `DECLARED`, for typer."""
    return settings_command(SETTINGS, REPLACED, DECLARED[name].unlisted)


def declared(name: str, module: str) -> Callable[..., None]:
    """Return the function of a command in `DECLARED`, for typer; it imports the command's `module` when called."""
    found = DECLARED[name]

    def run(**given: Any) -> None:
        token = by_typescript.set(given.get("events_fd") is not None)  # `optimize` of the npm package
        try:
            getattr(import_module(module), name)(**given)
        finally:
            by_typescript.reset(token)

    run.__doc__ = found.help
    return with_flags(run, found.own, [each for each in SETTINGS.values() if each.name not in found.without])
