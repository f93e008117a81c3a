"""The announcements of `evolverpc serve`: lines for people, or JSON lines for programs."""

import os
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import orjson

from evolverpc_common.installation import installed_version
from evolverpc_common.printed_commands import shell_line
from protocol import ProgramInfo
from protocol.errors import ProgramFailed
from rpc_server.cli.listen_endpoint import Token
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.open_worktrees import ExcludedFiles


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
        kind = _language(settings) if program.components else f"{_language(settings)}, only scores"
        where = f"token in {token.file}" if token.file is not None else "token as given in GEPA_TOKEN"
        print(
            f"evolverpc {installed_version()} · {program.name} ({kind}) ready on {url} · {where}",
        )
        words = ["check", url.removesuffix("/rpc")]
        words += ["--token-file", str(token.file)] if token.file is not None else []
        words += [] if "train" in splits else ["--trainset", "ROWS.jsonl"]
        print(f"next, in another terminal: {shell_line(words)}", flush=True)

    def no_score(self) -> None:
        """Warn that the program returns outputs without scores, which a run needs."""
        _print_stderr(
            "warning: the program has no `score(example, output)`: write this function, or name a server "
            "that scores by `evolverpc optimize --score-with URL`"
        )

    def token_excluded(self, token: Token) -> None:
        """Announce that the new token file is in a git repository, and that git ignores it now."""
        _print_stderr(
            f"the new token file {token.file} is in a git repository: a line in {token.excluded_by} makes "
            "git ignore it, so that it is not committed"
        )

    def split_skipped(self, split: str) -> None:
        """Announce that a split of the program cannot be used."""
        _print_stderr(
            f"split {split!r} is left out: the program lists it without its rows; "
            f"let the program share them, or give them as `datasets`"
        )

    def worktrees_opened(self, top: Path, excluded: ExcludedFiles) -> None:
        """Announce the commit that candidates start from, and what of the user's folder it lacks."""
        start = f"{excluded.branch}@{excluded.commit[:12]} of {top}"
        without = f"; left out, as not committed: {_some(excluded.changed)}" if excluded.changed else ""
        untracked = f"; left out, as untracked: {excluded.untracked} files or folders" if excluded.untracked else ""
        _print_stderr(f"candidates start from {start}{without}{untracked}")
        if excluded.submodules:
            _print_stderr(f"the folders of submodules are empty: {_some(excluded.submodules)}")
        if excluded.filters:
            _print_stderr(
                f"git's filters are not run ({_some(excluded.filters)}): their files are as commits store "
                f"them; give what the program needs of them as untracked files, by `links`"
            )

    def jail_enabled(self) -> None:
        """Announce that a jail is used although the settings do not request one."""
        _print_stderr(
            "programs, builds, checks and agents run in a jail that can write only to their own copy of "
            "the files and to a /tmp of their own; --no-jail lifts that"
        )

    def no_jail(self, why: str) -> None:
        """Warn what agents and their code can do without a jail."""
        _print_stderr(
            "warning: coding agents and the code that they write run with all rights of your user: they "
            "can change .git/hooks, .git/config, your working tree and your home folder, and read every file that "
            f"you can read. Use a sandbox for code that you do not trust. There is no jail: {why}"
        )

    def building(self, command: Sequence[str]) -> None:
        """Announce that the user's build runs, which may take a while."""
        _print_stderr(f"running {shlex.join(command)} (`build_command`)")

    def trying_check(self) -> None:
        """Announce that the user's check runs on the unchanged code, which may take a while."""
        _print_stderr("running `check_command` on the code as it is")

    def no_agent_credentials(self, names: Sequence[str]) -> None:
        """Warn that Claude has none of these variables."""
        first, *others = names
        _print_stderr(
            f"warning: Claude has no {first} (nor {', '.join(others)}) in the server's environment, "
            f"so change requests will fail"
        )

    def mutations(self, settings: Settings, agent: str, top: Path) -> None:
        """Announce which agent changes the code, and where results go."""
        pushed = "" if settings.push is None else f", pushed to {settings.push}"
        _print_stderr(f"clients may have {agent} change the code, on branches evolve/ of {top}{pushed}")

    def draining(self) -> None:
        """Announce that no new work is accepted."""
        if self._json_lines:
            _emit("draining")
        else:
            _print_stderr("finishing what is running; SIGINT ends at once")

    def failed(self, message: str) -> None:
        """Announce that it cannot start because of its settings or its machine."""
        if self._json_lines:
            _emit("failed", stage="settings", message=message)
        _print_stderr(message)

    def program_failed(self, error: ProgramFailed) -> None:
        """Announce that it cannot start because of the program, with all details."""
        if self._json_lines:
            _emit("failed", **{"message": error.message, **error.details})
        _print_stderr(start_failure(error))


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


def _some(names: list[str], most: int = 5) -> str:
    shown = ", ".join(name.encode("utf-8", "replace").decode() for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _language(settings: Settings) -> str:
    return "python" if settings.command is None else Path(settings.command[0]).name


def _emit(event: str, **fields: Any) -> None:
    sys.stdout.write(orjson.dumps({"event": event, **fields}).decode() + "\n")
    sys.stdout.flush()


def _print_stderr(text: str) -> None:
    sys.stderr.write(f"evolverpc serve: {text}\n")
    sys.stderr.flush()
