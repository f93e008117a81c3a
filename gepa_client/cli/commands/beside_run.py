"""What runs beside a command that drives a run: its sandboxes, and the page of the run."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from evolverpc_common.display_text import shell_line, without_password
from gepa_client.journal.store import STORE_VARIABLE
from gepa_client.sandboxing.session_interface import SWEEP, Log, NoSandboxes
from gepa_client.settings.run_config import RunConfig
from gepa_client.views.console import USAGE, echo, fail, log_markup, make_console, safe

START_TIMEOUT_S = 20.0
END_TIMEOUT_S = 5.0


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


@contextmanager
def page_shown(run_id: str, store: str, *, wanted: bool, quiet: bool) -> Iterator[None]:
    """Serve the page of a run during the block if it is `wanted`, and print its address; a page that fails is stated.

    `quiet`: the address goes to standard error. The browser opens if a terminal shows the address.
    """
    if not wanted:
        yield
        return
    console = make_console(stderr=quiet)
    secret = without_password(store) != store  # lists of processes show arguments
    words = ["watch", run_id, "--ends-with-stdin", *([] if secret else ["--store", store])]
    process = subprocess.Popen(  # noqa: S603 (a command of ours)
        [sys.executable, "-P", "-m", "gepa_client", *words, *([] if console.is_terminal else ["--no-open"])],
        env={**os.environ, STORE_VARIABLE: store} if secret else None,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C stops the run first
    )
    try:
        output = process.stdout
        answered = output is not None and select.select([output], [], [], START_TIMEOUT_S)[0]
        address = output.readline() if output is not None and answered else ""
        if address.startswith("page: "):
            echo(console, safe(address.strip()))
        else:
            fail("the page cannot be served, and the run continues without it")
        yield
    finally:
        try:
            process.communicate(timeout=END_TIMEOUT_S)  # which closes its input
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
