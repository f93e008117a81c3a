"""What the processes of a work print, read from their log files as lines without secrets."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.files import open_plain
from evolverpc_common.redaction import Secrets
from gepa_service.jobs.messages import LogLines
from gepa_service.model.work import LogLine
from gepa_service.records import new_id, now

LONGEST_LINE = 4_000
READ_AT_ONCE = 32 << 10
"""Bytes of one file; what is read at once is a record."""

LARGEST_LOG = 8 << 20
"""Bytes of one file that an attempt records; the rest stays in the file."""


@dataclass
class _File:
    """A file that grows. `offset`: what was read of it; `begin`: where this attempt began."""

    source: str
    path: Path
    begin: int = 0
    offset: int = 0
    is_cut: bool = False


class JobLogs:
    """Reads complete lines of files from where they end now. Used by one thread.

    `files`: by the source that their lines are marked with. `secrets`: are taken out. `unsent`: what was read, until it
    is `sent`; no more than that is read meanwhile.
    """

    def __init__(self, files: Mapping[str, Path], secrets: Secrets) -> None:
        self._files = [_File(source, path) for source, path in files.items()]
        for file in self._files:
            with contextlib.suppress(OSError):
                file.begin = file.offset = file.path.lstat().st_size
        self._secrets = secrets
        self._lines: list[LogLine] = []
        self.unsent: tuple[LogLines, ...] = ()

    def add(self, text: str) -> None:
        """Add a line of the attempt's own."""
        self._lines.append(self._line("attempt", text))

    def read(self, *, last: bool = False) -> None:
        """Read what is new. `last`: incomplete lines too, and all that is left."""
        if self.unsent and not last:
            return
        while True:
            for file in self._files:
                self._read(file, last=last)
            if not self._lines:
                return
            self.unsent += (LogLines(id=new_id("log"), lines=tuple(self._lines)),)
            self._lines.clear()
            if not last:
                return

    def sent(self, logs: tuple[LogLines, ...]) -> None:
        """Forget what was kept."""
        self.unsent = tuple(each for each in self.unsent if each not in logs)

    def _read(self, file: _File, *, last: bool) -> None:
        if file.is_cut:
            return
        found = _bytes_of(file.path, file.offset)
        is_full = len(found) == READ_AT_ONCE
        end = found.rfind(b"\n") + 1
        if (last and not is_full) or (is_full and not end):
            end = len(found)
        file.offset += end
        for text in found[:end].decode("utf-8", "replace").splitlines():
            if text.strip():
                self._lines.append(self._line(file.source, text))
        if file.offset - file.begin > LARGEST_LOG:
            file.is_cut = True
            self._lines.append(self._line(file.source, "more was printed, which is not recorded"))

    def _line(self, source: str, text: str) -> LogLine:
        return LogLine(at=now(), source=source, text=self._secrets.redact_text(text)[:LONGEST_LINE])


def _bytes_of(path: Path, offset: int) -> bytes:
    """Return what a file holds from here on, at most `READ_AT_ONCE`; nothing if it is not there, or no plain file."""
    try:
        with open_plain(path.parent, path.name) as opened:
            opened.seek(offset)
            return opened.read(READ_AT_ONCE)
    except OSError:
        return b""
