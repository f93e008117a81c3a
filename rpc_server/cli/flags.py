"""The flags of `gepa-server`: one for each setting, by the same name."""

import inspect
import json
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rpc_server.settings.config_file import SettingsError

_COMMAND = "--command"

JSON_VARIABLE = "GEPA_READY_JSON"
"""Asks for JSON lines as `--json` does, and is the same for servers in every language."""

_FLAGS: dict[str, tuple[type, str]] = {
    "root": (str, "Folder that paths start from and user code runs in."),
    "kind": (str, "program, adapter, command or dspy; follows from what is given, but `dspy` must be said."),
    "program": (
        str,
        "A module of plain functions: pkg.module or path/to/file.py. With `score` and no `run` it only scores what "
        "other programs answer, for gepa-client's --score-with. With --kind dspy: the class, pkg.module.Class.",
    ),
    "adapter": (str, "A GEPAAdapter class, or a function making one: pkg.module:Name."),
    "adapter_args": (str, "The adapter's arguments, as a JSON object."),
    "command": (str, "A command that speaks the protocol over stdio; all that follows belongs to it."),
    "seed_candidate": (str, "A JSON object, or the path of a JSON file. None for a program that only scores."),
    "name": (str, "The program's name."),
    "version": (str, "The program's own version. Alone: print the version of gepa-server and exit."),
    "python": (str, "The interpreter that runs the program."),
    "env": (list[str], "NAME=VALUE for the program's environment."),
    "jail": (
        bool,
        "Each process of the program's, and each command, in a bubblewrap jail of its own that can write to its own "
        "files only, not through `links`. Linux. The default with --trees and --allow-mutations, if bubblewrap works.",
    ),
    "workers": (int, "Program processes; one per core when not given. Not for an adapter."),
    "metric": (str, "For dspy: pkg.module.function, taking (example, prediction) or GEPA's five arguments."),
    "trainset_path": (str, "For dspy: rows of the split `train`: .json, .jsonl or .csv."),
    "valset_path": (str, "For dspy: rows of the split `val`."),
    "saved_program_json_path": (str, "For dspy: read at the start where it is there; finalize writes it."),
    "field_descriptions": (bool, "For dspy: the fields' descriptions are components too."),
    "demos": (bool, "For dspy: the predictors' demos are components too."),
    "add_format_failure_as_feedback": (bool, "For dspy: answers that do not parse are reflected on, as in dspy.GEPA."),
    "proposer": (
        str,
        "For dspy: gepa (the optimizer proposes, the default) or dspy (DSPy's own proposer, as dspy.GEPA, in the "
        "program's process; DSPy 3.2 or newer).",
    ),
    "reflection_lm": (str, "For the proposer dspy: pkg.module.lm, the dspy.LM that it asks."),
    "seed": (int, "For dspy: decides which of a predictor's several calls is reflected on; dspy.GEPA takes the run's."),
    "threads": (int, "Examples at once in one process, in threads. For `program`, where `run` is not async; for dspy."),
    "max_concurrency": (
        int,
        "Examples at once in all, with trees over all commits; for an async `run` 64 when not given.",
    ),
    "thread_safe": (bool, "The adapter bears overlapping calls."),
    "transient": (list[str], "An exception type that is an infrastructure failure; replaces the built-in list."),
    "example_timeout_s": (float, "Seconds one example may run; inf for no deadline."),
    "start_timeout_s": (float, "Seconds the program may take to start."),
    "call_timeout_s": (float, "Seconds a call about no single example may run: records, proposals, finalize."),
    "datasets": (list[str], "SPLIT=FILE: rows held here, in .json, .jsonl or .csv."),
    "share_rows": (bool, "list_examples gives the rows, not only their ids."),
    "trees": (bool, "Candidates name the commit that runs: each gets its own files and processes."),
    "allow_mutations": (bool, "Clients may have the program's code changed, on branches of its git repository."),
    "max_trees": (int, "Commits ready to run at once, beside --max-mutations being checked; see --max-concurrency."),
    "tree_dir": (str, "Folder for the files of commits; the user's cache folder when not given."),
    "links": (
        list[str],
        "An untracked file or folder that every commit's files get a link to: no copy, what is written there stays.",
    ),
    "build_command": (str, "Run in a commit's files before its program starts."),
    "build_timeout_s": (float, "Seconds that may take."),
    "allow": (list[str], "Glob of paths, from the repository's top, that mutations may change; all when not given."),
    "deny": (list[str], "Glob of paths that they may not."),
    "allow_tests": (
        bool,
        "Mutations may change tests, and what configures or runs --check-command; otherwise they may not.",
    ),
    "max_diff_bytes": (int, "Bytes of a mutation's diff."),
    "check_command": (str, "Tests, lint: a mutation is rejected unless it exits with 0 in the changed files."),
    "check_timeout_s": (float, "Seconds that may take."),
    "max_mutations": (int, "Mutations under way at the same time."),
    "push": (str, "The remote that finished branches are pushed to."),
    "agent_command": (str, "An agent with a command line: the task on its stdin, in the files. Claude when not given."),
    "agent_model": (str, "The model that Claude uses."),
    "agent_tools": (list[str], "A tool that Claude may use; Read, Edit, Write, Glob, Grep and Bash when not given."),
    "agent_max_turns": (int, "Turns that Claude may take for one mutation."),
    "agent_max_cost_usd": (float, "US dollars that Claude may spend on one mutation."),
    "agent_timeout_s": (float, "Seconds an agent may take for one mutation."),
    "host": (str, "Address to listen on."),
    "port": (int, "Port to listen on; 0 picks a free one."),
    "token_file": (
        str,
        "File with the bearer token; made with a random one where there is none, and kept, so that a restart has the "
        "same token. Else GEPA_TOKEN, else a random one for this start alone. Not in a sandbox, whose token is given.",
    ),
    "allowed_hosts": (list[str], "A further Host that is let in."),
    "allowed_origins": (list[str], "An Origin that is let in."),
    "max_request_bytes": (int, "Bytes of one request."),
    "max_batch_size": (int, "Examples in one call."),
    "max_batch_entries": (int, "Requests in one JSON-RPC array."),
    "max_queue": (int, "Examples waiting beyond those running."),
    "max_result_bytes": (
        int,
        "Bytes of one example's result, with its trajectory where that is sent along; an example with a larger one is "
        "a `program_error`. 48 MiB when not given, or a 32nd of the memory.",
    ),
    "max_trace_bytes": (int, "Bytes of trajectories kept; 256 MiB when not given, or an eighth of the memory."),
    "max_answer_bytes": (int, "Bytes of answers kept; 256 MiB when not given, or an eighth of the memory."),
    "abandon_after_s": (float, "Seconds a call with a call_id runs without anyone asking."),
    "keep_answers_s": (float, "Seconds an answer is kept after it was last asked for."),
    "drain_s": (float, "Seconds to finish in after SIGTERM."),
}
_PAIRS = ("env", "datasets")
_COMMANDS = ("command", "build_command", "check_command", "agent_command")


def create_typer_app(action: Callable[..., None]) -> typer.Typer:
    """A typer app whose one command calls `action(config, flags, json_lines, conformance)`.

    Its signature is made from the table above, so that no flag can be listed and then forgotten.
    """
    fixed: dict[str, tuple[Any, Any]] = {
        "config": (
            Annotated[Path | None, typer.Option(help="gepa.toml, or a pyproject.toml with [tool.gepa].")],
            None,
        ),
        "json_lines": (
            Annotated[bool, typer.Option("--json", envvar=JSON_VARIABLE, help="Say what happens in JSON lines.")],
            False,
        ),
        "conformance": (Annotated[bool, typer.Option("--conformance", help="Serve the conformance program.")], False),
    }
    settings: dict[str, tuple[Any, Any]] = {
        name: (Annotated[kind | None, typer.Option(help=text)], None) for name, (kind, text) in _FLAGS.items()
    }

    def gepa_server(config: Path | None, json_lines: bool, conformance: bool, **given: Any) -> None:
        """Serve one program to gepa-client over HTTP.

        Settings come from gepa.toml, or [tool.gepa] in pyproject.toml, in the working directory; flags override them.
        """
        action(config, read_flags(given), json_lines=json_lines, conformance=conformance)

    parameters = {**fixed, **settings}
    gepa_server.__annotations__ = {name: annotation for name, (annotation, _) in parameters.items()}
    signature = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, (annotation, default) in parameters.items()
        ]
    )
    gepa_server.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect, unknown to typeshed
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(gepa_server)
    return app


def with_one_command(arguments: Sequence[str]) -> list[str]:
    """The arguments with everything after `--command` made one value; a quoted command line takes one argument only."""
    if _COMMAND not in arguments:
        return list(arguments)
    position = arguments.index(_COMMAND)
    before, after = [*arguments[:position]], [*arguments[position + 1 :]]
    if not after:
        return [*arguments]
    if " " in after[0].strip() and shutil.which(after[0]) is None:
        return [*before, f"{_COMMAND}={after[0]}", *after[1:]]
    return [*before, f"{_COMMAND}={shlex.join(after)}"]


def read_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that were given, as a configuration file would hold them; raises `SettingsError`."""
    flags = {name: value for name, value in given.items() if value is not None and value != []}
    for name in _PAIRS:
        if name in flags:
            flags[name] = dict(_pair(name, text) for text in flags[name])
    if "adapter_args" in flags:
        flags["adapter_args"] = _json_object("adapter_args", flags["adapter_args"])
    if flags.get("seed_candidate", "").lstrip().startswith("{"):
        flags["seed_candidate"] = _json_object("seed_candidate", flags["seed_candidate"])
    for name in _COMMANDS:
        if name in flags:
            try:
                flags[name] = shlex.split(flags[name])
            except ValueError as error:
                raise SettingsError(f"--{name.replace('_', '-')}: {error}") from None
    return flags


def _pair(name: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise SettingsError(f"--{name}: {text!r} is not of the form NAME=VALUE")
    return key, value


def _json_object(name: str, text: str) -> dict[str, Any]:
    flag = f"--{name.replace('_', '-')}"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingsError(f"{flag}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise SettingsError(f"{flag}: not a JSON object")
    return value
