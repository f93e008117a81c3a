"""Print what programs write on stderr, each line with the call and the example that it belongs to."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from evolverpc_common.display_text import plain
from evolverpc_common.redaction import Secrets, secrets_of
from rpc_server.program.process_output import written_output


class _SourceLines(logging.Formatter):
    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        source = plain(str(getattr(record, "source", "")))
        text = self._secrets.redact_text(record.getMessage())
        return "\n".join(f"[{source}] {plain(line)}" for line in text.splitlines())


@contextmanager
def printed_output() -> Iterator[None]:
    """Print it in the block, without the values of secret environment variables."""
    handler = logging.StreamHandler()
    handler.setFormatter(_SourceLines(Secrets(secrets_of())))
    written_output.addHandler(handler)
    written_output.setLevel(logging.INFO)
    written_output.propagate = False
    try:
        yield
    finally:
        written_output.removeHandler(handler)
        written_output.setLevel(logging.NOTSET)
