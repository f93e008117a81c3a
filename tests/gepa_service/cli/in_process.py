"""Run `evolverpc service` in the test's own process."""

import contextlib
import io
import sys
from collections.abc import Mapping
from unittest.mock import patch

from gepa_service.cli import main


def ran(*arguments: str, environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Return its exit status, stdout and stderr."""
    stdout, stderr, status = io.StringIO(), io.StringIO(), 0
    with (
        patch.dict("os.environ", environment, clear=True),
        patch.object(sys, "argv", ["evolverpc service", *arguments]),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, stdout.getvalue(), stderr.getvalue()
