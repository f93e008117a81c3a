"""What `evolverpc serve` prints: announcements, as lines for people or as JSON lines, and what its program writes."""

import logging
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from evolverpc_common.display_text import plain, shell_line
from evolverpc_common.installation import installed_version
from evolverpc_common.redaction import Secrets, secrets_of
from protocol import ProgramInfo
from protocol.errors import ProgramFailed
from rpc_server.cli.listen_endpoint import Token
from rpc_server.program.process import written_output
from rpc_server.settings import Settings

if TYPE_CHECKING:
    from rpc_server.worktrees.worktree_program import ExcludedFiles


MOST_NAMED = 5


class Announcer:
    """Prints one announcement at a time; with `json_lines` as one JSON object a line on stdout.

    Announcements without a JSON form go to stderr in both modes, as programs wait for `ready` on stdout.
    """

    def __init__(self, *, json_lines: bool) -> None:
        self._json_lines = json_lines

    def ready(
        self,
        settings: Settings,
        program: ProgramInfo,
        token: Token,
        *,
        url: str,
        instance_id: str,
        splits: Collection[str],
    ) -> None:
        """Announce that the program answers at this URL, and what to do next. `splits`: whose rows the server holds."""
        if self._json_lines:
            _emit(
                "ready",
                url=url,
                token=None if token.given else token.value,
                token_file=None if token.file is None else str(token.file),
                instance_id=instance_id,
                pid=os.getpid(),
            )
            return
        kind = settings.language if program.components else f"{settings.language}, only scores"
        where = f"token in {token.file}" if token.file is not None else "token as given in GEPA_TOKEN"
        print(
            f"evolverpc {installed_version()} · {program.name} ({kind}) ready on {url} · {where}",
        )
        words = ["check", url.removesuffix("/rpc")]
        words += ["--token-file", str(token.file)] if token.file is not None else []
        words += [] if "train" in splits else ["--trainset", "ROWS.jsonl"]
        print(f"next, in another terminal: {shell_line(words)}", flush=True)

    def note(self, text: str) -> None:
        """Print a line for people."""
        sys.stderr.write(f"evolverpc serve: {text}\n")
        sys.stderr.flush()

    def worktrees_opened(self, top: Path, excluded: "ExcludedFiles") -> None:
        """Announce the commit that candidates start from, and what of the user's folder it lacks."""
        start = f"{excluded.branch}@{excluded.commit[:12]} of {top}"
        without = f"; left out, as not committed: {_some(excluded.changed)}" if excluded.changed else ""
        untracked = f"; left out, as untracked: {excluded.untracked} files or folders" if excluded.untracked else ""
        self.note(f"candidates start from {start}{without}{untracked}")
        if excluded.submodules:
            self.note(f"the folders of submodules are empty: {_some(excluded.submodules)}")
        if excluded.filters:
            self.note(
                f"filters of git, such as Git LFS, are not run, and these files are as commits store them: "
                f"{_some(excluded.filters)}; give what the program needs of them as untracked files, by `links`"
            )

    def changeable(self, fixed: list[str], count: int) -> None:
        """Announce how many of the `count` files of the commit changes may touch; `fixed`: the others."""
        if not fixed:
            self.note("changes may touch every file, that of the score too: limit them by `allow` or `deny`")
        elif len(fixed) == count:
            self.note("warning: changes may touch no file that is there now, only new ones: see `allow` and `deny`")
        else:
            self.note(f"changes may touch {count - len(fixed)} of {count} files, and not {_some(fixed)}")

    def draining(self) -> None:
        """Announce that no new work is accepted."""
        if self._json_lines:
            _emit("draining")
        else:
            self.note("finishing what is running; SIGINT ends at once")

    def failed(self, message: str) -> None:
        """Announce that it cannot start because of its settings or its machine."""
        if self._json_lines:
            _emit("failed", stage="settings", message=message)
        self.note(message)

    def program_failed(self, error: ProgramFailed) -> None:
        """Announce that it cannot start because of the program, with all details."""
        if self._json_lines:
            _emit("failed", **{"message": error.message, **error.details})
        self.note(start_failure(error))


def start_failure(error: ProgramFailed) -> str:
    """Return why a program cannot start, with its interpreter, traceback and output as far as they are known."""
    details = {name: text for name, text in error.details.items() if text}
    stage = details.pop("stage", None)
    lines = [f"the program cannot start{f' ({stage})' if stage else ''}: {error.message}"]
    if "interpreter" in details:
        lines.append(f"  interpreter: {details.pop('interpreter')}")
    for name, title in (("traceback", "traceback"), ("log_tail", "its output")):
        if name in details:
            lines += [f"  {title}:", *(f"    {line}" for line in str(details[name]).rstrip().splitlines())]
    return "\n".join(lines)


def _some(names: list[str]) -> str:
    shown = ", ".join(name.encode("utf-8", "replace").decode() for name in names[:MOST_NAMED])
    return shown if len(names) <= MOST_NAMED else f"{shown} and {len(names) - MOST_NAMED} more"


def _emit(event: str, **fields: Any) -> None:
    sys.stdout.write(orjson.dumps({"event": event, **fields}).decode() + "\n")
    sys.stdout.flush()


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
    """Print in the block what programs write, each line with the call and the example that it belongs to.

    Values of secret environment variables are left out.
    """
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
