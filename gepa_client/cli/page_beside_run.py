"""Serve the page of a run beside the command that drives it (`--watch`), by a process of `evolverpc watch`."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from evolverpc_common.display_text import without_password
from gepa_client.journal.store import STORE_VARIABLE
from gepa_client.views.console import echo, fail, make_console, safe

START_TIMEOUT_S = 20.0
END_TIMEOUT_S = 5.0


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
