"""Sandboxes in words: how far they are, what becomes of them, and what to do where none comes up."""

import shlex
from typing import TYPE_CHECKING

from rich.console import Console
from rich.status import Status

from gepa_client.cli.views.console import safe, say
from gepa_client.settings.run_config import RunConfig

if TYPE_CHECKING:
    from sandbox_runtime.pool import PoolEvent


def during(event: "PoolEvent") -> str:
    """What a pool's event means to the reader, as markup; empty where it needs no telling."""
    up = f"{event.ready} of {event.wanted} ready"
    detail = safe(event.detail)
    match event.kind:
        case "ready" if event.ready == event.wanted > 1:
            return f"[dim]all {event.ready} sandboxes are ready, {event.elapsed_s:.1f} s after the first was begun[/]"
        case "died":
            return f"[yellow]sandbox {safe(event.id or '')} has ended[/] ({detail}) and is replaced; {up}"
        case "failed":
            later = f"; the next try is in {event.seconds:.0f} s" if event.seconds else ""
            return f"[yellow]a sandbox could not be started:[/] {detail}{later}"
        case "unasked":
            return f"[yellow]sandbox {safe(event.id or '')} refuses its token, and no new one could be had:[/] {detail}"
        case "not_freed":
            which = "not all sandboxes" if event.id is None else f"not all of sandbox {safe(event.id)}"
            return f"[yellow]{which} could be freed:[/] {detail}; gepa-client sandboxes --sweep ends what is left"
        case "shrinks":
            return f"[dim]there is work for fewer sandboxes: {event.wanted} stay[/]"
        case "grows":
            return f"[dim]there is work for more sandboxes: {event.wanted} are wanted[/]"
        case _:
            return ""


def why(error: BaseException) -> str:
    """Why there is none, with the end of what it said."""
    tail = str(getattr(error, "log_tail", "")).strip()
    return f"no sandbox could be started: {error}" + (f"\n{tail}" if tail and tail not in str(error) else "")


def publishing(settings: RunConfig) -> str:
    """The command that builds what sandboxes at Modal are started from."""
    words = ["gepa-client", "sandboxes", "--publish", "--repo", settings.repo or ""]
    for flag, value in (
        ("--ref", settings.ref),
        ("--git-token-file", settings.git_token_file),
        ("--github-app-id", settings.github_app_id),
        ("--github-app-key-file", settings.github_app_key_file),
        ("--github-installation-id", settings.github_installation_id),
        ("--sandbox-workspace-mb", _if_given(settings, "sandbox_workspace_mb")),
        ("--modal-app", settings.modal_app),
    ):
        words += [flag, str(value)] if value is not None else []
    return shlex.join(words)


def _if_given(settings: RunConfig, name: str) -> object:
    return getattr(settings, name) if name in settings.model_fields_set else None


class StartStatus:
    """A line that changes in place on a terminal, and lines elsewhere."""

    def __init__(self, console: Console, text: str) -> None:
        self._console = console
        self._status: Status | None = console.status(text) if console.is_terminal else None
        if self._status is None:
            say(console, f"{text} …")

    def __enter__(self) -> "StartStatus":
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the line away."""
        if self._status is not None:
            self._status.stop()

    def now(self, text: str) -> None:
        """How far it is."""
        if self._status is not None:
            self._status.update(text)

    def say(self, markup: str) -> None:
        """A line that stays."""
        say(self._console, markup)
