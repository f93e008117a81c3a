"""Start the sandboxes of a command for the time of its work; print how that goes, and what to do if none starts."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from evolverpc_common.display_text import shell_line
from gepa_client.sandboxing.session_interface import SWEEP, Log, NoSandboxes
from gepa_client.settings.run_config import RunConfig
from gepa_client.views.console import USAGE, echo, fail, log_markup, make_console, safe


@contextmanager
def sandboxed(
    settings: RunConfig,
    run_id: str,
    again: str,
    *,
    quiet: bool = False,
    count: int | None = None,
    spent_usd: float = 0.0,
    failed: int = USAGE,
) -> Iterator[NoSandboxes]:
    """Start sandboxes for the block, the first of them ready, if `settings` name a repository.

    `again`: the command to repeat after a failure. `quiet`: print to stderr, as stdout takes JSON alone. `count`:
    sandboxes, in place of the setting. `spent_usd`: what the run spent before. `failed`: exit status if none starts.

    Raises:
        typer.Exit: no sandbox started; the reason was printed.
    """
    if settings.repo is None:
        yield NoSandboxes(settings)
        return
    from gepa_client.sandboxing import session as sessions  # loads sandbox_runtime, which other commands do without
    from gepa_client.sandboxing import setup

    console = make_console(stderr=quiet)
    size = settings.sandboxes if count is None else count
    session = sessions.SandboxSession(settings, run_id, setup.open_setup, size=size)
    with sessions.signals_interrupt():
        try:
            try:
                began = time.monotonic()
                title = f"starting {size} sandbox{'' if size == 1 else 'es'} ({settings.sandbox})"
                with _start_status(console, title) as update:

                    def show(log: Log) -> None:
                        echo(console, log_markup(log))

                    session.start(show, update, spent_usd=spent_usd)
                which = "the sandbox" if size == 1 else f"the first of {size} sandboxes"
                echo(console, f"[dim]{which} was ready after {time.monotonic() - began:.1f} s[/]")
            except sessions.SessionNotStarted as error:
                fail(str(error))
                following = publish_command(settings) if error.must_publish else again
                when = "next" if error.must_publish else "once that is fixed"
                echo(make_console(stderr=True), f"{when}: {safe(following)}")
                raise typer.Exit(failed) from None
            yield session
        finally:
            if not session.close():
                fail(f"not all sandboxes have ended; this ends what is left: {SWEEP}")


def publish_command(settings: RunConfig) -> str:
    """Return the command that builds the image from which sandboxes at Modal start."""
    words = ["sandboxes", "--publish", "--repo", settings.repo or ""]
    for flag, value in (
        ("--ref", settings.ref),
        ("--git-token-file", settings.git_token_file),
        ("--modal-app", settings.modal_app),
    ):
        words += [flag, str(value)] if value is not None else []
    return shell_line(words)


def show_findings(sandboxes: NoSandboxes) -> None:
    """Print what sandboxes add to the findings of a check."""
    for log in sandboxes.check_findings():
        echo(make_console(stderr=True), log_markup(log))


@contextmanager
def _start_status(console: Console, text: str) -> Iterator[Callable[[str], None]]:
    """Print the progress of the start; yield the function that replaces the line on a terminal."""
    if console.is_terminal:
        with console.status(text) as status:
            yield status.update
    else:
        echo(console, f"{text} …")
        yield lambda _: None
