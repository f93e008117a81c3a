"""`evolverpc watch [RUN]`: serve the live page of a run to the browser of this machine."""

import asyncio
import contextlib
import html
import signal
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from gepa_client.cli.arguments import RunName, StoreUrl
from gepa_client.cli.commands.store_access import open_cli_run
from gepa_client.journal.store import LAST, default_store
from gepa_client.journal.stored_fields import OVER
from gepa_client.page.built_page import PageMissing, built_page
from gepa_client.page.page_server import PageServer, serving
from gepa_client.views.console import echo, make_console, refuse


def watch(
    run: RunName = LAST,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, metavar="N", help="Port; 0 takes a free one.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address only; open no browser.")] = False,
    ends_with_stdin: Annotated[bool, typer.Option("--ends-with-stdin", hidden=True)] = False,
    store: StoreUrl = None,
) -> None:
    """Show a running or finished run on a page in the browser, and all runs of the store beside it.

    The page is served to this machine alone, at an address with a secret. It follows the run until Ctrl-C, whichever
    machine drives it; the run does not depend on it.
    """
    with open_cli_run(store, run) as (_, found):
        is_over = found.status in OVER
    try:
        server = PageServer(default_store(store), built_page())
    except PageMissing as error:
        refuse(str(error))
    try:
        asyncio.run(_serve(server, found.id, port, is_over=is_over, opens=not no_open, ends_with_stdin=ends_with_stdin))
    except OSError as error:
        refuse(f"port {port} of this machine cannot be used: {error.strerror or error}; choose another with --port")


async def _serve(
    server: PageServer, run_id: str, port: int, *, is_over: bool, opens: bool, ends_with_stdin: bool
) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError):  # not the main thread
            loop.add_signal_handler(number, over.set)
    if ends_with_stdin:
        loop.run_in_executor(None, _wait_for_stdin, loop, over)
    async with serving(server, port):
        address = server.address(run_id)
        server.read_ahead(run_id)
        echo(make_console(), f"page: {address}")
        echo(make_console(), f"Ctrl-C ends the page{'' if is_over else '; the run continues'}")
        with _redirection(address) if opens else contextlib.nullcontext() as redirection:
            if redirection is not None:
                await asyncio.to_thread(webbrowser.open, redirection.as_uri())
            await over.wait()


@contextlib.contextmanager
def _redirection(address: str) -> Iterator[Path]:
    """Make a file for the browser that leads to the address, whose secret must not be in the browser's arguments.

    Lists of processes show arguments to every user of this machine; the file can be read by this user alone. It is
    deleted at the end of the block.
    """
    with tempfile.TemporaryDirectory(prefix="gepa-client-page-") as folder:
        path = Path(folder) / "open.html"
        content = f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(address)}"><title>Run</title>'
        path.touch(mode=0o600)
        path.write_text(content)
        yield path


def _wait_for_stdin(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    """Set `over` at the end of standard input, which also follows the death of the process that holds its other end."""
    sys.stdin.read()
    loop.call_soon_threadsafe(over.set)
