"""Sandboxes on the terminal: the progress of their start, and a list of them."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.status import Status
from rich.table import Table

from gepa_client.cli.views.console import duration, echo, safe_line
from gepa_client.sandboxing.session_interface import LABEL_LENGTH, RUN_LABEL
from gepa_client.settings.groups import SandboxKind
from gepa_client.settings.run_config import RunConfig

if TYPE_CHECKING:
    from sandbox_runtime import SandboxInfo


@dataclass(frozen=True)
class ListedSandbox:
    """A sandbox of one kind. `ended`: this command ended it."""

    kind: SandboxKind
    found: "SandboxInfo"
    ended: bool = False

    def as_json(self, *, swept: bool) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        found = self.found
        return {
            "id": found.id,
            "sandbox": self.kind,
            "run": found.labels.get(RUN_LABEL),
            "name": found.labels.get("name"),
            "created": found.created,
            "owner": found.owner,
            "orphan": found.orphan,
            **({"ended": self.ended} if swept else {}),
        }


def publish_command(settings: RunConfig) -> str:
    """Return the command that builds the image from which sandboxes at Modal start."""
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
    """Return the setting, None if it was not given."""
    return getattr(settings, name) if name in settings.model_fields_set else None


class StartStatus:
    """How far the start is: a line that changes in place on a terminal, a single line elsewhere."""

    def __init__(self, console: Console, text: str) -> None:
        self._status: Status | None = console.status(text) if console.is_terminal else None
        if self._status is None:
            echo(console, f"{text} …")

    def __enter__(self) -> "StartStatus":
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def update(self, text: str) -> None:
        """Replace the line on a terminal."""
        if self._status is not None:
            self._status.update(text)


def show_sandboxes(console: Console, found: "Sequence[ListedSandbox]", *, swept: bool) -> None:
    """Print a table of sandboxes; `swept`: they were to be ended."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("id", "sandbox", "run", "age", "owner", "state"):
        table.add_column(heading, no_wrap=heading != "owner", justify="right" if heading == "age" else "left")
    for each in found:
        state = "[yellow]orphan[/]" if each.found.orphan else "in use"
        table.add_row(
            safe_line(each.found.id, 64),
            each.kind,
            safe_line(each.found.labels.get(RUN_LABEL, ""), LABEL_LENGTH),
            duration(max(0.0, time.time() - each.found.created)),
            safe_line(each.found.owner, 80),
            "[green]ended[/]" if each.ended else state,
        )
    console.print(table, soft_wrap=not console.is_terminal)
    ended, orphans = sum(each.ended for each in found), sum(each.found.orphan for each in found)
    if swept:
        echo(console, f"{ended} sandbox{'' if ended == 1 else 'es'} ended, {len(found) - ended} left")
    elif orphans:
        echo(console, f"[yellow]{orphans} of {len(found)} have no owner any more[/]")
