"""`evolverpc sandboxes`: list all sandboxes, run a command in one, end those without an owner, build environments."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from evolverpc_common.display_text import command, duration
from evolverpc_common.settings.sources import SettingsError
from gepa_client.sandboxing.session_interface import LABEL_LENGTH, RUN_LABEL
from gepa_client.settings.loading import load
from gepa_client.settings.run_settings import SUGGESTED_METRIC_CALLS, SandboxKind
from gepa_client.settings.shell_arguments import GivenArguments
from gepa_client.views.console import (
    PAUSED,
    cut_cell,
    echo,
    echo_next,
    fail,
    make_console,
    plain_table,
    print_json,
    refuse,
    safe,
    safe_line,
)

if TYPE_CHECKING:
    from sandbox_runtime import SandboxInfo

KINDS: tuple[SandboxKind, ...] = get_args(SandboxKind)
MANY = 20
"""Sandboxes in a printed command; fewer if they share the cores of this machine."""

TIMED_OUT = 124
"""The exit status of a command in a sandbox that ran out of time, as `timeout` has it."""


@dataclass(frozen=True)
class ListedSandbox:
    """A sandbox of one kind. `ended`: this command ended it."""

    kind: SandboxKind
    found: "SandboxInfo"
    ended: bool = False

    @property
    def run(self) -> str:
        """The id of its run; empty if it has none."""
        return self.found.labels.get(RUN_LABEL, "")

    def as_json(self, *, swept: bool) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        found = self.found
        return {
            "id": found.id,
            "sandbox": self.kind,
            "run": self.run or None,
            "name": found.labels.get("name"),
            "created": found.created,
            "owner": found.owner,
            "orphan": found.orphan,
            **({"ended": self.ended} if swept else {}),
        }


def sandboxes(
    action: Annotated[
        list[str] | None,
        typer.Argument(metavar="[exec ID -- COMMAND...]", help="Run a command in the sandbox ID, beside its server."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="With exec: the time after which the command is ended.")
    ] = 60.0,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Only those of this run: its id, in full.")] = None,
    sandbox: Annotated[
        SandboxKind | None, typer.Option(help="Only of this kind (default all that this machine knows).")
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="End those whose owner is certainly gone; with --run all of that run.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="With --sweep: end all of them, in use or not.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="What --all does is meant.")] = False,
    modal_app: Annotated[str | None, typer.Option(metavar="NAME", help="The app at Modal they belong to.")] = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="Build the environment of --repo, for Modal its image; start nothing.")
    ] = False,
    repo: Annotated[str | None, typer.Option(metavar="PATH|URL", help="With --publish: the repository.")] = None,
    ref: Annotated[str | None, typer.Option(metavar="COMMIT", help="Its commit, tag or branch.")] = None,
    git_token_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="File that holds a token for cloning it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """List the sandboxes on this machine, and at Modal if it has credentials; end those that were left behind.

    `exec ID -- COMMAND` runs a command in the program's folder of a sandbox, with its environment, and exits with its
    status (124 if it ran out of time). `--` stands before the command's own flags. The sandbox's run must be active.

    Sandboxes at Modal start from images, which --publish --repo REPO builds once for each set of requirements.

    Exits with 0 if everything was done, 2 for a usage error, 3 if one kind could not be listed, nothing could be built
    or the command could not be run.
    """
    if every and not sweep:
        refuse("--all extends --sweep: give both")
    if every and run is not None:
        refuse("--all and --run name different sandboxes to end: leave one of them out")
    if every and not yes:
        refuse("--all ends sandboxes that runs are using, which pauses the runs; confirm with --yes")
    if yes and not every:
        refuse("--yes is for --all, which is not given")
    if publish != (repo is not None):
        refuse("--publish and --repo belong together: what is built, and for which program")
    if publish and (sweep or run is not None):
        refuse("--publish builds an environment and uses no sandbox: leave --sweep and --run out")
    if action:
        if publish or sweep or run is not None:
            refuse("exec runs a command in one sandbox: leave --publish, --sweep and --run out")
        raise typer.Exit(_exec(action, timeout, as_json=as_json))
    if repo is not None:
        source = {"repo": repo, "ref": ref, "git_token_file": git_token_file}
        _publish({**source, "sandbox": sandbox or "modal", "modal_app": modal_app})
        return
    kinds = (sandbox,) if sandbox is not None else tuple(kind for kind in KINDS if kind != "modal" or _has_modal())
    orphans_only = not every and run is None
    found, unreachable = asyncio.run(_list_sandboxes(kinds, run, modal_app, sweep=sweep, orphans_only=orphans_only))
    if as_json:
        for each in found:
            print_json(each.as_json(swept=sweep))
    else:
        named = {"--sandbox": sandbox, "--modal-app": modal_app}
        again = [word for flag, value in named.items() if value is not None for word in (flag, value)]
        _show(found, run, again, sweep=sweep)
    for kind, why in unreachable.items():
        fail(f"{kind}: {why}")
    if unreachable:
        raise typer.Exit(PAUSED)


def _exec(action: list[str], timeout_s: float, *, as_json: bool) -> int:
    """Run a command in a sandbox and print its output; return the exit status."""
    from gepa_client.sandboxing.remote_exec import ExecRequest, NoSuchSandbox, exec_in_sandbox  # loads sandbox_runtime
    from sandbox_runtime import SandboxError

    if action[0] != "exec" or len(action) < 3:
        refuse("give `exec ID -- COMMAND`, for instance: evolverpc sandboxes exec ID -- ls -l")
    request = ExecRequest(id=action[1], argv=tuple(action[2:]), timeout_s=timeout_s)
    try:
        done = asyncio.run(exec_in_sandbox(request))
    except NoSuchSandbox:
        refuse(f"no active run has a sandbox {request.id}: `{command('sandboxes', store=None)}` lists their ids")
    except (SandboxError, OSError) as error:
        refuse(str(error), PAUSED)
    if as_json:
        output = {name: getattr(done, name).decode("utf-8", "replace") for name in ("stdout", "stderr")}
        print_json({"status": done.status, **output, "seconds": round(done.seconds, 3)})
    else:
        sys.stdout.buffer.write(done.stdout)
        sys.stderr.buffer.write(done.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        if done.timed_out:
            fail(f"the command was ended after {timeout_s:g} s; --timeout SECONDS allows more")
    return TIMED_OUT if done.status is None else done.status


def _publish(given: dict[str, Any]) -> None:
    """Build the environment and print the next command."""
    from gepa_client.sandboxing.setup import publish  # loads sandbox_runtime
    from sandbox_runtime import SandboxError

    console = make_console()
    try:
        settings = load(None, given, must_end=False)
        asyncio.run(publish(settings, lambda text: echo(console, f"[dim]{safe(text)}[/]")))
    except SettingsError as error:
        refuse(str(error))
    except (SandboxError, OSError, ValueError) as error:
        refuse(str(error), PAUSED)
    typed = {name: value for name, value in given.items() if value is not None}
    count = MANY if settings.sandbox == "modal" else min(MANY, os.cpu_count() or 1)
    following = GivenArguments((), None, typed).command(
        "optimize", sandboxes=count, max_metric_calls=SUGGESTED_METRIC_CALLS
    )
    echo(console, f"the environment is ready\nnext: {safe(following)}")


async def _list_sandboxes(
    kinds: tuple[SandboxKind, ...], run: str | None, modal_app: str | None, *, sweep: bool, orphans_only: bool
) -> tuple[list[ListedSandbox], dict[SandboxKind, str]]:
    """Return the sandboxes found, and the kinds that could not be listed, with the reason."""
    from sandbox_runtime import SandboxError  # `--help` does without
    from sandbox_runtime.backends import open_runtime
    from sandbox_runtime.endpoints_file import sweep_endpoints_folders

    labels = {RUN_LABEL: run[:LABEL_LENGTH]} if run is not None else None
    all_found, unreachable = list[ListedSandbox](), dict[SandboxKind, str]()
    for kind in kinds:
        listed: list[ListedSandbox] = []
        try:
            runtime = open_runtime(kind, app_name=modal_app)
            async with runtime if kind == "modal" else nullcontext():  # the others can be listed without being opened
                listed = [ListedSandbox(kind, found) for found in await runtime.found(labels)]
                if sweep:
                    ended = await runtime.sweep(labels, orphans_only=orphans_only)
                    listed = [replace(each, ended=each.found.id in ended) for each in listed]
        except (SandboxError, OSError) as error:
            unreachable[kind] = str(error)
        all_found += listed
    if sweep:
        await asyncio.to_thread(sweep_endpoints_folders)
    return sorted(all_found, key=lambda each: each.found.created), unreachable


def _has_modal() -> bool:
    """Return whether Modal's own client would find credentials."""
    if find_spec("modal") is None:
        return False
    config = os.environ.get("MODAL_CONFIG_PATH") or "~/.modal.toml"
    return bool(os.environ.get("MODAL_TOKEN_ID")) or Path(config).expanduser().is_file()


def _show(found: Sequence[ListedSandbox], run: str | None, again: Sequence[str], *, sweep: bool) -> None:
    """Print a table for each run and the next command; `again`: flags that one about the same sandboxes needs."""
    console = make_console()
    if not found:
        echo(console, "no sandboxes" + (f" of run {safe_line(run)}" if run is not None else ""))
    for of in sorted({each.run for each in found}):
        echo(console, f"[bold]run {safe_line(of)}[/]" if of else "[bold]of no run[/]")
        table = plain_table("id", "sandbox", "age", "state")
        table.add_column("owner")  # alone it is cut on a narrow terminal
        for each in (each for each in found if each.run == of):
            state = "[yellow]orphan[/]" if each.found.orphan else "in use"
            table.add_row(
                safe_line(each.found.id),
                each.kind,
                duration(max(0.0, time.time() - each.found.created)),
                "[green]ended[/]" if each.ended else state,
                cut_cell(safe_line(each.found.owner)),
            )
        console.print(table)
    ended, orphans = sum(each.ended for each in found), sum(each.found.orphan for each in found)
    if sweep and found:
        echo(console, f"{ended} sandbox{'' if ended == 1 else 'es'} ended, {len(found) - ended} left")
    elif orphans:
        echo(console, f"[yellow]{orphans} of {len(found)} have no owner any more[/]")
    left = orphans and not sweep
    following = command("sandboxes", "--sweep", *again, store=None) if left else command("runs", store=None)
    echo_next(console, following)
