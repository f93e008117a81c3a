"""The command line of `evolverpc serve`: one flag for each setting, by the same name."""

import contextlib
import gc
import os
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from evolverpc_common.installation import stated_version
from evolverpc_common.settings.settings_command import settings_command, with_flags
from evolverpc_common.settings.sources import SettingsError
from rpc_server.settings import SETTINGS

CANNOT_START = 2

_COMMAND = "--command"

_CERTIFICATES = "SSL_CERT_FILE"
"""The variable of OpenSSL that names the certificates to trust."""

JSON_VARIABLE = "GEPA_READY_JSON"
"""Asks for JSON lines as `--json` does, and is the same for servers in every language."""

_PANEL = "For scripts"

_OWN: dict[str, tuple[Any, Any]] = {
    "config": (
        Annotated[
            Path | None,
            typer.Option("--config", "-c", metavar="PATH", help="gepa.toml, or a pyproject.toml with [tool.gepa]."),
        ],
        None,
    ),
    "json_lines": (
        Annotated[
            bool,
            typer.Option("--json", envvar=JSON_VARIABLE, help="Print events as JSON lines.", rich_help_panel=_PANEL),
        ],
        False,
    ),
    "until_stdin_closes": (
        Annotated[
            bool,
            typer.Option(
                "--until-stdin-closes",
                help="End with the process that holds this one's standard input.",
                rich_help_panel=_PANEL,
            ),
        ],
        False,
    ),
    "conformance": (
        Annotated[
            bool,
            typer.Option(
                "--conformance",
                help="Serve the conformance program, or the one given, with the limits for its checks.",
                rich_help_panel=_PANEL,
            ),
        ],
        False,
    ),
}


_HELP = """Serve one program to optimizers over HTTP: `evolverpc serve FILE`, or by one of the flags below.

A Python FILE has `seed_candidate`, a dict of texts by name, `run(example, candidate)`, and
`score(example, output)`, which returns a number, or a number and feedback such as (0.5, "too long"). With
`propose_new_texts` it proposes its own texts, without a model. A TypeScript or JavaScript FILE exports its
`program`; its folder has the npm package evolverpc and, for TypeScript, tsx.

\b
A COMMAND in any language reads a request from each line of its stdin,
  {"jsonrpc": "2.0", "id": 1, "method": METHOD, "params": {...}}
and writes a line with the same id. It answers at least two methods:
  discover  {"jsonrpc": "2.0", "id": 1, "result":
            {"program": {"name": NAME, "seed_candidate": TEXTS}}}
  evaluate  {"jsonrpc": "2.0", "id": 2, "result":
            {"results": [{"status": "ok", "score": 1, "output": ANY}]}}
with one result for each row. The command runs the row `params.batch[N].data`
with the texts `params.candidate`, and scores the output itself. TEXTS is an
object of texts by name.

\b
Try a server: evolverpc call URL evaluate PARAMS --token-file FILE
  PARAMS: '{"candidate": TEXTS, "batch": [{"id": "1", "data": ROW}]}'

Every flag is also a key of gepa.toml, or of [tool.gepa] in pyproject.toml, in the working directory, and a variable
(GEPA_WORKERS). A flag has precedence over a variable, a variable over the file.
"""


class _ServerCommand(settings_command(SETTINGS)):  # type: ignore[misc]  # a class made from the settings
    """The command; a Python file that is given without a flag is the program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments. Raises SettingsError for one that belongs to no flag."""
        ctx.allow_extra_args = True
        rest: list[str] = super().parse_args(ctx, args)
        if len(rest) == 1 and rest[0].endswith(".py") and ctx.params["program"] is None:
            ctx.params["program"] = rest[0]
        elif rest:
            raise SettingsError(
                f"{rest[0]} belongs to no flag: `evolverpc serve FILE` serves a Python file, and a TypeScript or "
                f"JavaScript file if it comes first; `evolverpc serve {_COMMAND} COMMAND` serves any other program"
            )
        return []


def run(arguments: Sequence[str]) -> None:
    """Run the command with these arguments and exit with its status."""
    if [*arguments] == ["--version"]:
        print(stated_version())
        sys.exit(0)
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    app.command(cls=_ServerCommand, options_metavar="[OPTIONS] [FILE]", help=_HELP)(
        with_flags(_serve, _OWN, SETTINGS.values())
    )
    try:
        app(with_one_command(arguments), prog_name="evolverpc serve")
    except SettingsError as error:
        from rpc_server.cli.announce import Announcer

        Announcer(json_lines="--json" in arguments or JSON_VARIABLE in os.environ).failed(str(error))
        sys.exit(CANNOT_START)


def _serve(config: Path | None, json_lines: bool, until_stdin_closes: bool, conformance: bool, **flags: Any) -> None:
    """Serve until a signal; the flags are those of the settings."""
    with _without_certificates():
        from rpc_server.cli.serve import start  # with all that a server needs, and its help does not

    if until_stdin_closes:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    gc.freeze()  # what was imported is never garbage
    gc.set_threshold(50_000, 20, 50)  # calls that wait are not garbage either, and are looked at each time
    gc.enable()
    given = {name: value for name, value in flags.items() if value is not None and value != []}
    sys.exit(start(config, given, json_lines=json_lines, conformance=conformance))


@contextlib.contextmanager
def _without_certificates() -> Iterator[None]:
    """Let aiohttp, which reads all certificates of the machine when it is imported, read none: a server needs none."""
    named = os.environ.get(_CERTIFICATES)
    os.environ[_CERTIFICATES] = os.devnull
    try:
        yield
    finally:
        del os.environ[_CERTIFICATES]
        if named is not None:
            os.environ[_CERTIFICATES] = named


def _end_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def with_one_command(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with all that follows `--command` as one value; a quoted command line is one argument."""
    if _COMMAND not in arguments:
        return list(arguments)
    position = arguments.index(_COMMAND)
    before, after = [*arguments[:position]], [*arguments[position + 1 :]]
    if not after:
        return [*arguments]
    if " " in after[0].strip() and shutil.which(after[0]) is None:
        return [*before, f"{_COMMAND}={after[0]}", *after[1:]]
    return [*before, f"{_COMMAND}={shlex.join(after)}"]
