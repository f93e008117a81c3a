"""`evolverpc.optimize`: one call that serves a program, runs the optimizer, and returns the best candidate."""

import ast
import difflib
import inspect
import linecache
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Unpack

from evolverpc.live_program import Propose, is_dspy
from evolverpc.local_server import NOT_OF_SERVER, SERVER, held_rows, is_named, script_name, served
from evolverpc.result import Result, result_of
from evolverpc.settings_types import OptimizeSettings
from evolverpc_common.exact_values import InexactValueError, packed
from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import ClientError, summary
from gepa_client.foreground.foreground_run import ForegroundRun
from gepa_client.foreground.run_starts import checked_run, new_run_id, output_again, settings_again
from gepa_client.journal.entries import ITS_ID, StoredRun
from gepa_client.journal.store import default_store, find_run, open_store
from gepa_client.run.supervisor import launched_ahead
from gepa_client.settings.loading import load
from gepa_client.settings.run_config import ROW_SETTINGS, SETTINGS, RunConfig
from gepa_client.settings.run_settings import SandboxSettings
from gepa_client.settings.shell_arguments import GivenArguments
from gepa_client.views import notebook
from gepa_client.views.console import STOPPED
from gepa_client.views.final_summary import RunSummary
from protocol.errors import RpcError

WORKER = "_evolverpc_worker"
"""The module by which a process of a program is known: that of `rpc_server/worker/bootstrap.py`."""

NOT_OF_RUN = frozenset(
    {"url", "fleet", "token_file", "allow_insecure", "require", *SandboxSettings.model_fields} - {"model_prices"}
)
"""Settings of a run that name servers, or where they come from, and the exit status that it has."""

KEYWORDS = {name: each for name, each in SETTINGS.items() if name not in {*NOT_OF_RUN, *ROW_SETTINGS}}
"""Settings of the run; if the server has one of that name too, it is given to the server."""

OWN = ("program", "propose", "resume")
NAMES_OF_CHECK = {"no_check": "off", "ignore_findings": "warn"}
"""Other names of the setting `check`, and the value that each stands for; the first of several counts."""

NO_SERVER_YET = "http://127.0.0.1:1"
"""Takes the place of the server while the settings are checked."""

IF_BLOCKED = (
    "evolverpc: the program has stopped this process: code that keeps Python's lock, such as the search for a regular "
    f"expression, cannot be interrupted. End the process by `kill -9 {os.getpid()}`, or restart the notebook's kernel. "
    "A program that is given as the path of its file runs in processes of its own: there such an example is ended, and "
    "fails alone"
)
FUNCTIONS = 'functions as in {"seed_candidate": {...}, "run": run, "score": score}'
Rows = str | Path | Iterable[Mapping[str, Any]]
"""A .json, .jsonl or .csv file, the name of a split that the program holds, or the rows themselves."""


class OptimizeError(Exception):
    """A run could not start, was paused or failed; the message states why and what to do.

    `run_id`: of a run that was begun; `result`: what it found before it ended, if the seed was scored.
    """

    def __init__(self, message: str, run_id: str | None = None, result: Result | None = None) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.result = result


def optimize(
    program: object = None,
    *,
    trainset: Rows | None = None,
    valset: Rows | None = None,
    testset: Rows | None = None,
    propose: Propose | None = None,
    resume: str | None = None,
    **settings: Unpack[OptimizeSettings],
) -> Result:
    """Improve the texts of a program with GEPA; show the progress, and return the best candidate.

    Everything is recorded as by `evolverpc optimize`, whose settings are the other keyword arguments, with those of
    `evolverpc serve`; the candidates are those of the command with the same seed. Ctrl-C pauses the run, and raises the
    error that has its result.

    `program`: the path of a Python file or the name of a module, which runs in processes of its own, where an example
    that hangs is ended. Or functions of this process, as a dict of them by name (`seed_candidate`, `run`, `score`, ...)
    or an object that has them, or a DSPy program as `{"student": ..., "metric": ...}`: these run in threads of this
    process. None if an `adapter` or a `command` is given. `trainset`, `valset`, `testset`: a file of rows, or the
    rows. `propose`: a function of (candidate, reflective dataset, components) that returns new texts by component, in
    place of a `reflection_lm`. `resume`: the id of a run to continue, or `last`; the settings given
    replace those recorded.

    Raises:
        OptimizeError: a setting is wrong, the program cannot start, the check of a few rows failed, or the run did not
            complete; then the error has the `run_id` to resume, and what was found so far.
    """
    if WORKER in sys.modules:
        raise OptimizeError(
            "evolverpc.optimize was called while the program's file was imported by a process of the program: put the "
            'call below `if __name__ == "__main__":`'
        )
    typed = _Call((), None, {}, _own_source(sys._getframe(1)))
    run: ForegroundRun | None = None
    try:
        _check_names(settings)
        own: dict[str, Any] = {name: value for name, value in settings.items() if name in SERVER}
        given = {name: _value(name, value) for name, value in settings.items() if name in KEYWORDS and name not in own}
        for name, value in NAMES_OF_CHECK.items():
            if settings.get(name):
                given.setdefault("check", value)
        given_rows = dict(zip(ROW_SETTINGS, (trainset, valset, testset), strict=True))
        held = held_rows(given_rows) if is_dspy(program) else {}
        given |= {name: name if name in held else _rows(name, value) for name, value in given_rows.items()}
        _check_program(program)
        if callable(settings.get("reflection_lm")):
            other = (
                'a `dspy.LM` belongs into the program: {"student": ..., "metric": ..., "reflection_lm": lm}'
                if is_dspy(program)
                else "give a function that returns new texts as `propose`"
            )
            raise SettingsError(f'`reflection_lm` is the name of a model, such as "openai/gpt-5": {other}')
        if is_dspy(program):
            own["dspy"] = {"seed": settings.get("seed", 0), **own.get("dspy", {})}
        if propose is not None and settings.get("reflection_lm") is not None:
            raise SettingsError("`propose` and `reflection_lm` both propose new texts: leave one of them out")
        if resume is None:
            load(None, {**given, "url": [NO_SERVER_YET]})  # a mistake is found before the program starts
        with ExitStack() as stack:
            endpoint = stack.enter_context(served(program, own, propose, held))
            given |= {"url": [endpoint.url], "token_file": endpoint.token_file}
            typed = replace(typed, given=given)
            run = _start(typed, stack) if resume is None else _continue(given, resume)
            if_blocked = None if is_named(program) else IF_BLOCKED
            ended = replace(run, if_blocked=if_blocked, resumed_by=typed.again(resume=run.run.id)).drive()
    except (SettingsError, ClientError, RpcError, OSError) as error:
        raise OptimizeError(summary(error)) from None
    except KeyboardInterrupt:
        if run is None:
            raise OptimizeError(f"stopped by hand, so no run began; to repeat: {typed.again()}") from None
        raise OptimizeError(f"stopped by hand; to continue: {typed.again(resume=run.run.id)}", run.run.id) from None
    return _result(ended)


def _check_program(program: object) -> None:
    """Raise `SettingsError` for an object that holds no functions."""
    if inspect.isroutine(program):
        raise SettingsError(f"`program` is the function {program.__name__} alone: give {FUNCTIONS}")
    run = getattr(program, "run", None)
    if isinstance(program, type) and inspect.isfunction(run) and "self" in inspect.signature(run).parameters:
        raise SettingsError(f"`program` is the class {program.__name__}: give an object of it, {program.__name__}(...)")
    if isinstance(program, bool | int | float | bytes | list | tuple | set):
        raise SettingsError(f"`program` is {_a(program)}: give {FUNCTIONS}, or the path of a Python file")


def _check_names(settings: Iterable[str]) -> None:
    """Raise `SettingsError` for arguments that are no settings, each with the nearest one."""
    known = {*KEYWORDS, *SERVER, *NAMES_OF_CHECK}
    for name in settings:
        if name in NOT_OF_RUN:
            why = "its result has a `verdict`" if name == "require" else "it serves the program itself"
            raise SettingsError(f"`{name}` is for the command `evolverpc optimize`, not for the function: {why}")
        if name in NOT_OF_SERVER - known:
            raise SettingsError(f"`{name}` needs `evolverpc serve`, and then `evolverpc optimize` with its URL")
        if name not in known:
            near = difflib.get_close_matches(name, [*OWN, *ROW_SETTINGS, *known], n=1, cutoff=0.5)
            raise SettingsError(f"there is no setting `{name}`" + (f"; did you mean `{near[0]}`?" if near else ""))


def _value(name: str, value: Any) -> Any:
    """Return a setting as flags give it: one text in place of a list of texts is a list of one."""
    return [value] if isinstance(value, str) and name in KEYWORDS and KEYWORDS[name].repeatable else value


def _rows(name: str, rows: Rows | None) -> Any:
    if rows is None or isinstance(rows, str):
        return rows
    if isinstance(rows, Path):
        return str(rows)
    for attribute, call in (("to_dicts", "to_dicts()"), ("iloc", 'to_dict("records")')):  # polars, pandas
        if hasattr(rows, attribute):
            raise SettingsError(f"{name} is {_a(rows)}: give its rows as dicts, as {call} returns them")
    if not isinstance(rows, Iterable):
        raise SettingsError(f"{name} is {_a(rows)}: give a list of dicts, or a file")
    found = []
    for index, row in enumerate(rows):
        row = row.toDict() if hasattr(row, "toDict") else row  # a dspy.Example
        if not isinstance(row, Mapping):
            raise SettingsError(f"{name}: row {index} is {_a(row)}: give a list of dicts, or a file")
        try:
            found.append(packed(dict(row)))
        except InexactValueError as error:
            raise SettingsError(f"{name}: row {index}: {error}") from None
    if not found:
        raise SettingsError(f"{name} has no rows")
    return found


def _a(value: object) -> str:
    return f"a {type(value).__name__}"


def _own_source(caller: FrameType) -> str | None:
    """Return the source of a call that a cell or a prompt makes, which can be pasted there; None of any other."""
    where: Any = inspect.getframeinfo(caller)
    lines = linecache.getlines(where.filename)
    if script_name() or not lines or caller.f_locals is not vars(sys.modules["__main__"]):
        return None
    return ast.get_source_segment("".join(lines), where.positions)


@dataclass(frozen=True)
class _Call(GivenArguments):
    """What was given to the function, for messages that show a call. `source`: of the user's own, if it is known."""

    source: str | None

    def command(self, name: str, **instead: Any) -> str:  # noqa: ARG002  # there is one
        """Return the call; `instead` replaces or adds keyword arguments."""
        call: Any = ast.parse(self.source or "evolverpc.optimize(...)", mode="eval").body
        call.keywords = [each for each in call.keywords if each.arg not in instead]
        call.keywords += [ast.keyword(name, ast.Constant(value)) for name, value in instead.items()]
        return ast.unparse(call)

    def again(self, **instead: Any) -> str:
        """Return the same with where it stands, or what its dots stand for, if it cannot be pasted."""
        script = script_name()
        where = f" in {script}" if script else "" if self.source else " with the same arguments"
        return self.command("optimize", **instead) + where


def _start(typed: _Call, stack: ExitStack) -> ForegroundRun:
    """Check the program on a few rows, and create the run, whose process is on `stack`."""
    settings, faults = load(None, typed.given), list[str]()
    launch = stack.enter_context(launched_ahead(settings))
    resumed_by = replace(typed, source=None).again(resume=ITS_ID)  # the record keeps no arguments: some are secret
    run = checked_run(settings, new_run_id(settings.name), typed, resumed_by, on_failure=faults.append)
    if run == STOPPED:
        raise KeyboardInterrupt
    if isinstance(run, int):
        raise OptimizeError("\n".join(faults))
    return _foreground(settings, default_store(settings.store), run, Path(run.output or ""), launch=launch)


def _continue(given: Mapping[str, Any], resume: str) -> ForegroundRun:
    store = given.get("store")
    where = default_store(store)
    if not Path(where).exists() and "://" not in where:
        raise SettingsError(f"no store at {where}: no run was started there; name another with `store`")
    with closing(open_store(where)) as kept:
        found: StoredRun = find_run(kept, resume)
        seen = len(kept.requests(found.id))
    settings = settings_again(found, given, None)
    for name in ROW_SETTINGS:
        if getattr(settings, name) == name and given[name] is None:
            raise SettingsError(f"{name}: the rows of the run are objects of your script: give them again")
    return _foreground(settings, where, found, output_again(found), seen_requests=seen)


def _foreground(settings: RunConfig, store: str, run: StoredRun, output: Path, **more: Any) -> ForegroundRun:
    return ForegroundRun(
        settings=settings,
        store=store,
        store_typed=settings.store,
        run=run,
        output=output,
        json_events=False,
        display=notebook.NotebookDisplay() if notebook.in_notebook() else None,
        **more,
    )


def _result(ended: RunSummary) -> Result:
    finished = ended.finished
    reason = finished.reason or "the seed was not scored"
    if finished.status == "refused":
        raise OptimizeError(reason)
    result = result_of(ended)
    if result is not None and notebook.in_notebook():
        diff = result.diff
        notebook.show(diff.html, diff.text)
    if result is None or finished.status != "completed":
        fix = "If the program must change, fix it and start a new run; if not, continue it"
        how = fix if finished.status == "failed" else "To continue it"
        again = f"run {ended.run_id} is {finished.status}: {reason}\n{how}: {ended.resumed_by}"
        raise OptimizeError(again, ended.run_id, result)
    return result
