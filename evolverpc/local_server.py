"""A server of one program in this process, for `evolverpc.optimize`: on loopback, from a thread, with its own token.

Rows of a DSPy program that are objects of the script stay here: the program gets these, by split and position.
"""

import contextvars
import functools
import hashlib
import secrets
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolverpc.live_program import LiveLauncher, Propose, WithProposer, is_dspy
from evolverpc_common.exact_values import MAX_SAFE_INTEGER
from evolverpc_common.row_files import RowFileError, read_rows
from evolverpc_common.settings.sources import SettingsError
from gepa_client.transport.event_loop import EventLoopThread
from protocol.errors import ProgramFailed
from rpc_server.cli.announce import printed_output, start_failure
from rpc_server.cli.listen_endpoint import bound, url_of
from rpc_server.http import create_app, listening
from rpc_server.methods.dataset_rows import Datasets, check_carried, program_rows, untyped_splits
from rpc_server.program.open_program import open_program
from rpc_server.program.program import Program
from rpc_server.settings import SETTINGS, CodeChangeSettings, ListenSettings, Settings, load_settings
from rpc_server.worker.json_values import json_form

NOT_OF_SERVER = frozenset({*ListenSettings.model_fields, *CodeChangeSettings.model_fields, "jail", "name", "program"})
"""Settings of a server that are for the command `evolverpc serve`; `name` is that of the run."""

NOT_OF_THREADS = frozenset({"workers", "python", "env", "root", "logs"})
"""Settings of a server that do not apply to a program that runs in threads of this process."""

SERVER = {name: each for name, each in SETTINGS.items() if name not in NOT_OF_SERVER}
"""Settings of the server that `evolverpc.optimize` takes."""

HeldRows = Mapping[str, list[Any]]
"""Rows by split, each a `dspy.Example`."""

_LONGEST_TEXT, _SHOWN = 4_000, 200
"""Characters of a text of such a row that is recorded whole, and of a longer one that are."""


@dataclass(frozen=True)
class ServedProgram:
    """Where a program is served: its URL, and the file of its token."""

    url: str
    token_file: Path


@contextmanager
def served(
    program: object, server: Mapping[str, Any], propose: Propose | None, rows: HeldRows
) -> Iterator[ServedProgram]:
    """Serve the program for the block.

    `program`: a file or a module by its name, which runs in processes as those of `evolverpc serve`; any other object
    runs in threads of this process, in the context of the caller. `server`: settings of `evolverpc serve`. `propose`:
    proposes new texts in place of the program. `rows`: objects that a DSPy program gets as they are, by split.

    Raises:
        SettingsError: the settings are wrong, or the program cannot start.
    """
    settings = _settings(program, server)
    with (
        printed_output() if settings.logs else nullcontext(),
        tempfile.TemporaryDirectory(prefix="evolverpc-") as folder,
    ):
        token, token_file = secrets.token_urlsafe(32), Path(folder) / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(token)
        loop, context = EventLoopThread(), contextvars.copy_context()
        live = None if is_named(program) else functools.partial(LiveLauncher, program, rows=rows, context=context)
        serving = _serving(live, settings, propose, token, rows)
        try:
            try:
                url = loop.run(_next(serving))
            except ProgramFailed as error:
                raise SettingsError(start_failure(error)) from None
            except RowFileError as error:
                raise SettingsError(str(error)) from None
            yield ServedProgram(url, token_file)
        finally:
            loop.run(serving.aclose())
            loop.close()


def is_named(program: object) -> bool:
    """Return whether the program runs in processes of its own."""
    return program is None or isinstance(program, str | Path)


def _settings(program: object, server: Mapping[str, Any]) -> Settings:
    if program is None and not {"adapter", "command"}.intersection(server):
        raise SettingsError(
            "`program` is missing: give the path of a Python file, the name of a module, or functions as in "
            '{"seed_candidate": {...}, "run": run, "score": score}'
        )
    if str(program).endswith(".ipynb"):
        raise SettingsError(f"`program` is {program}, a notebook: give its functions, as a dict or as `globals()`")
    if is_named(program):
        named = {} if program is None else {"program": str(program)}
        python = {} if "command" in server else {"python": sys.executable}
        return load_settings(None, {**python, **named, **server}, find=False)
    for name in NOT_OF_THREADS.intersection(server):
        raise SettingsError(
            f"`{name}` is for programs in processes of their own, and an object is served by this process: "
            "give the program as the path of its file, or leave it out"
        )
    if not is_dspy(program):
        return load_settings(None, {"program": _name(), "workers": 1, **server}, find=False)
    own = {name: name for name in ("reflection_lm", "instruction_proposer") if program.get(name) is not None}
    return load_settings(
        None,
        {
            "program": _name(),
            "kind": "dspy",
            "metric": "metric",
            **server,
            "dspy": {**server.get("dspy", {}), **own},
        },
        find=False,
    )


def _name() -> str:
    """Return the name of a program that is an object: that of the script."""
    return Path(script_name() or "notebook").stem


def script_name() -> str:
    """Return the name of the script's file; "" in a notebook, and at a prompt."""
    return Path(getattr(sys.modules["__main__"], "__file__", None) or "").name


async def _next(serving: AsyncGenerator[str, None]) -> str:
    return await anext(serving)


async def _serving(
    live: Callable[[dict[str, Any]], LiveLauncher] | None,
    settings: Settings,
    propose: Propose | None,
    token: str,
    objects: HeldRows,
) -> AsyncGenerator[str, None]:
    """Yield the URL; closing the generator ends the server and the program. `live`: of a program in this process."""
    opened: Program = await open_program(settings, make_launcher=live)
    try:
        if propose is not None:
            opened = WithProposer(opened, propose)
        rows = {split: read_rows(settings.root / path) for split, path in settings.datasets.items()}
        check_carried(rows, opened)
        held = rows or {split: own for split, own in (await program_rows(opened)).items() if own is not None}
        datasets = Datasets(
            {**held, **_shown_rows(objects)},
            share_rows=settings.share_rows,
            untyped=untyped_splits(settings.datasets),
            objects=objects.keys(),
        )
        with bound(settings, None) as sock:
            async with listening(create_app(opened, settings, token=token, datasets=datasets), sock):
                yield url_of(settings, sock)
    finally:
        await opened.close()


def held_rows(given: dict[str, Any]) -> HeldRows:
    """Return the rows of each split that has a `dspy.Example` among them, and leave lists of all others in `given`."""
    held = {}
    for name, rows in given.items():
        if not isinstance(rows, Iterable) or isinstance(rows, str) or hasattr(type(rows), "columns"):  # a file, a table
            continue
        given[name] = rows = list(rows)
        example = next((type(row) for row in rows if hasattr(row, "with_inputs")), None)
        if example is not None:
            held[name] = [row if isinstance(row, example) else example(row) for row in rows]
    return held


def _shown_rows(held: HeldRows) -> dict[str, list[dict[str, Any]]]:
    """Return the rows as the optimizer records and shows them: in JSON, long texts by their beginning and a digest."""
    return {split: [_shown(json_form(row)) for row in rows] for split, rows in held.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {_shown(name): _shown(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_shown(part) for part in value]
    if isinstance(value, str):
        content = value.encode("utf-8", "backslashreplace")
        text = content.decode()
        if len(text) <= _LONGEST_TEXT:
            return text
        return f"{text[:_SHOWN]}… ({len(text)} characters, SHA-256 {hashlib.sha256(content).hexdigest()})"
    return str(value) if isinstance(value, int) and abs(value) > MAX_SAFE_INTEGER else value
