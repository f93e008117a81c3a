"""`gepa-client sandboxes`: every sandbox there is, whoever started it, and the end of those that nobody owns."""

import asyncio
import os
import shlex
import time
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from rich.console import Console
from rich.table import Table

from evolverpc_common.printed_commands import ENOUGH
from gepa_client.cli import flags
from gepa_client.cli.commands.store_access import refuse
from gepa_client.cli.exit_status import PAUSED, STOPPED
from gepa_client.cli.views.console import duration, fail, make_console, print_json, safe, safe_line, say
from gepa_client.settings.loading import SettingsError, load
from gepa_client.settings.sandbox_settings import SandboxKind

if TYPE_CHECKING:
    from sandbox_runtime import Found

KINDS: tuple[SandboxKind, ...] = get_args(SandboxKind)

RUN = "run"
"""The label that holds the run's id."""

LABEL_LENGTH = 63


@dataclass(frozen=True)
class _ListedSandbox:
    """A sandbox of one kind."""

    kind: SandboxKind
    found: "Found"

    def as_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        found = self.found
        return {
            "id": found.id,
            "sandbox": self.kind,
            "run": found.labels.get(RUN),
            "name": found.labels.get("name"),
            "created": found.created,
            "owner": found.owner,
            "orphan": found.orphan,
        }


@dataclass
class _Listing:
    """What was found, and which kinds could not be looked at, with the reason."""

    seen: list[_ListedSandbox]
    out_of_reach: dict[SandboxKind, str]
    ended: dict[SandboxKind, list[str]]


def sandboxes(
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
    github_app_id: Annotated[str | None, typer.Option(metavar="ID", help="The GitHub App that may clone it.")] = None,
    github_app_key_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="File that holds the App's private key, as PEM.")
    ] = None,
    github_installation_id: Annotated[
        int | None, typer.Option(metavar="ID", help="Its installation (default the one for the repository).")
    ] = None,
    sandbox_workspace_mb: Annotated[
        int | None, typer.Option(metavar="MIB", help="What may be written in a sandbox; no larger commit is packed.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """List the sandboxes on this machine, and at Modal where its credentials are; end those that were left behind.

    Sandboxes at Modal are started from images, which --publish --repo REPO makes once for each set of requirements.

    Ends with 0 when all that was asked for was done, 2 for a usage error, 3 where one kind could not be looked at or
    nothing could be built.
    """
    if every and not sweep:
        refuse("--all says what --sweep ends: give both")
    if every and run is not None:
        refuse("--all and --run say different things of what is to be ended: leave one of them out")
    if every and not yes:
        refuse("--all ends sandboxes that runs are working in, which pauses them; give --yes where that is meant")
    if yes and not every:
        refuse("--yes is for --all, which is not given")
    if publish != (repo is not None):
        refuse("--publish and --repo belong together: what is built, and for which program")
    if publish and (sweep or run is not None):
        refuse("--publish builds an environment and looks at no sandbox: leave --sweep and --run out")
    if repo is not None:
        given = {
            "repo": repo,
            "ref": ref,
            "git_token_file": git_token_file,
            "github_app_id": github_app_id,
            "github_app_key_file": github_app_key_file,
            "github_installation_id": github_installation_id,
            "sandbox_workspace_mb": sandbox_workspace_mb,
            "sandbox": sandbox or "modal",
        }
        _publish(given | ({"modal_app": modal_app} if modal_app is not None else {}))
        return
    kinds = (sandbox,) if sandbox is not None else tuple(kind for kind in KINDS if kind != "modal" or _has_modal())
    try:
        look = asyncio.run(_list_sandboxes(kinds, run, modal_app, sweep=sweep, orphans_only=not every and run is None))
    except KeyboardInterrupt:
        fail("stopped by hand")
        raise typer.Exit(STOPPED) from None
    if as_json:
        for each in look.seen:
            ended = {"ended": each.found.id in look.ended.get(each.kind, [])} if sweep else {}
            print_json(each.as_json() | ended)
    else:
        _show(look, make_console(), run, sweep=sweep)
    for kind, why in look.out_of_reach.items():
        fail(f"{kind}: {why}")
    if look.out_of_reach:
        raise typer.Exit(PAUSED)


def _publish(given: dict[str, Any]) -> None:
    """Build and show; ends the command where that cannot be."""
    from gepa_client.sandboxing.setup import publish  # as `_look`
    from sandbox_runtime import SandboxError

    console = make_console()
    try:
        settings = load(None, given, must_end=False)
        asyncio.run(publish(settings, lambda text: say(console, f"[dim]{safe(text)}[/]")))
    except SettingsError as error:
        refuse(str(error))
    except (SandboxError, OSError, ValueError) as error:
        refuse(str(error), PAUSED)
    except KeyboardInterrupt:
        fail("stopped by hand")
        raise typer.Exit(STOPPED) from None
    typed = {name: value for name, value in given.items() if value is not None}
    following = flags.Typed((), None, typed).command("optimize", sandboxes=20, max_metric_calls=ENOUGH)
    say(console, f"the environment is ready\nnext: {safe(following)}")


async def _list_sandboxes(
    kinds: tuple[SandboxKind, ...], run: str | None, modal_app: str | None, *, sweep: bool, orphans_only: bool
) -> _Listing:
    from sandbox_runtime import SandboxError  # `--help` does without
    from sandbox_runtime.backends.choose import open_runtime
    from sandbox_runtime.pool import sweep_folders

    labels = {RUN: run[:LABEL_LENGTH]} if run is not None else None
    look = _Listing([], {}, {})
    for kind in kinds:
        try:
            runtime = open_runtime(kind, app_name=modal_app)
            async with runtime if kind == "modal" else nullcontext():  # the others need not be there to be looked at
                look.seen += [_ListedSandbox(kind, found) for found in await runtime.found(labels)]
                if sweep:
                    look.ended[kind] = await runtime.sweep(labels, orphans_only=orphans_only)
        except (SandboxError, OSError) as error:
            look.out_of_reach[kind] = str(error)
    if sweep:
        await asyncio.to_thread(sweep_folders)
    look.seen.sort(key=lambda each: each.found.created)
    return look


def _has_modal() -> bool:
    """Whether Modal's own client would find credentials."""
    if find_spec("modal") is None:
        return False
    config = os.environ.get("MODAL_CONFIG_PATH") or "~/.modal.toml"
    return bool(os.environ.get("MODAL_TOKEN_ID")) or Path(config).expanduser().is_file()


def _show(look: _Listing, console: Console, run: str | None, *, sweep: bool) -> None:
    if not look.seen:
        say(console, "no sandboxes" + (f" of run {safe_line(run)}" if run is not None else ""))
        say(console, f"next: {safe(_command('runs'))}")
        return
    console.print(_table(look, sweep=sweep), soft_wrap=not console.is_terminal)
    ended = sum(map(len, look.ended.values()))
    orphans = sum(each.found.orphan for each in look.seen)
    if sweep:
        left = len(look.seen) - ended
        say(console, f"{ended} sandbox{'' if ended == 1 else 'es'} ended, {left} left")
    elif orphans:
        say(console, f"[yellow]{orphans} of {len(look.seen)} belong to nobody any more[/]")
    following = _command("sandboxes", "--sweep") if orphans and not sweep else _command("runs")
    say(console, f"next: {safe(following)}")


def _table(look: _Listing, *, sweep: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("id", "sandbox", "run", "age", "owner", "state"):
        table.add_column(heading, no_wrap=heading != "owner", justify="right" if heading == "age" else "left")
    for each in look.seen:
        found = each.found
        state = "[yellow]orphan[/]" if found.orphan else "in use"
        if sweep and found.id in look.ended.get(each.kind, []):
            state = "[green]ended[/]"
        table.add_row(
            safe_line(found.id, 64),
            each.kind,
            safe_line(found.labels.get(RUN, ""), LABEL_LENGTH),
            duration(max(0.0, time.time() - found.created)),
            safe_line(found.owner, 80),
            state,
        )
    return table


def _command(*words: str) -> str:
    return shlex.join(["gepa-client", *words])
