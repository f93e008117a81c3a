"""The page of a run beside the command that drives it: a process of its own, which ends with the command."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from evolverpc_common.display_text import without_password
from gepa_client.journal.store import STORE_VARIABLE
from gepa_client.views.console import echo, fail, make_console, safe

START_TIMEOUT_S = 20.0
END_TIMEOUT_S = 5.0

MOST_LINES, LONGEST_LINE = 20, 2_000
"""What is kept of the output of the page's process, which may write for as long as the run lasts."""


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
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C stops the run first
    )
    lines: list[str] = []
    first = threading.Event()
    threading.Thread(target=_read, args=(process.stdout, lines, first), name="page", daemon=True).start()
    try:
        if first.wait(START_TIMEOUT_S) and lines and lines[0].startswith("page: "):
            echo(console, safe(lines[0]))
        else:
            why = " ".join(lines) or f"it printed no address within {START_TIMEOUT_S:g} s"
            fail(f"the page cannot be served, and the run continues without it: {why}")
        yield
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _read(output: IO[str] | None, lines: list[str], first: threading.Event) -> None:
    while output is not None and (line := output.readline(LONGEST_LINE)):
        if len(lines) < MOST_LINES:
            lines.append(line.strip())
        first.set()
    first.set()
