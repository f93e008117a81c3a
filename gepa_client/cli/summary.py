"""The last words of a run: what became of it, where everything is, what to type next, and the scores."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from gepa_client.cli.console import safe
from gepa_client.cli.flags import Typed
from gepa_client.report.record import RunRecord
from gepa_client.run import folder as files
from gepa_client.run.config import RunConfig
from gepa_client.run.events import Finished

EXIT = {"finished": 0, "failed": 1, "paused": 3, "cancelled": 130}
"""Exit status by how the run ended; 2 is for settings that cannot be used."""

LABELS = {
    files.BEST_CANDIDATE: "best candidate",
    files.RESULT: "result",
    files.REPORT: "report",
    files.REPORT_PAGE: "report (page)",
    files.LOG: "log",
}


@dataclass(frozen=True)
class Ended:
    """A run that is over; `written` are names in `output`, `seconds` those of the whole run."""

    settings: RunConfig
    typed: Typed
    output: Path
    record: RunRecord
    finished: Finished
    written: list[str]
    seconds: float


def as_json(ended: Ended) -> dict[str, Any]:
    """The last line of `--json`."""
    headline = ended.record.headline()
    return {
        "event": "summary",
        "name": ended.settings.name,
        "status": ended.finished.status,
        "reason": ended.finished.reason,
        "rows": headline.rows if headline is not None else None,
        "seed_score": headline.seed if headline is not None else None,
        "best_score": headline.best if headline is not None else None,
        "metric_calls": ended.record.metric_calls,
        "seconds": round(ended.seconds, 3),
        "output": str(ended.output),
        "files": ended.written,
        "exit_status": EXIT[ended.finished.status],
    }


def show(ended: Ended, console: Console) -> None:
    """The same for people; the scores stand in the last line."""
    finished = ended.finished
    lines = []
    if finished.status != "finished":
        colour = "red" if finished.status == "failed" else "yellow"
        word = "stopped" if finished.status == "paused" else finished.status  # nothing takes it up again by itself
        lines.append(f"[{colour}]{word}:[/] {safe(finished.reason or 'no reason given')}")
        if finished.details:
            lines.append(f"[dim]{safe(finished.details.rstrip())}[/]")
    shown = _shown(ended.output)
    lines += [f"{LABELS[name]:<15} {safe(str(shown / name))}" for name in [*ended.written, files.LOG]]
    if finished.status == "paused" and ended.record.candidates:
        lines.append("The best candidate so far is kept; the same command begins again from the seed.")
    lines.append(f"{'next':<15} {safe(_next_command(ended, shown))}")
    lines.append(score_line(ended))
    for text in lines:
        console.print(text, soft_wrap=True)


def score_line(ended: Ended) -> str:
    """`python: score 0.00 -> 0.91, 412 metric calls, 6.2 s (60 test rows)`, as markup."""
    prefix = f"{safe(ended.settings.name)}: " if ended.settings.name else ""
    headline = ended.record.headline()
    if headline is None:
        return f"{prefix}no score: the run ended before the seed was scored, {ended.seconds:.1f} s"
    return (
        f"{prefix}score [bold]{headline.seed:.2f} -> {headline.best:.2f}[/], {ended.record.metric_calls} metric calls, "
        f"{ended.seconds:.1f} s ({headline.rows})"
    )


def _shown(output: Path) -> Path:
    """The folder as the reader would type it."""
    return output.relative_to(Path.cwd()) if output.is_relative_to(Path.cwd()) else output


def _next_command(ended: Ended, shown: Path) -> str:
    if not ended.record.candidates or ended.finished.status == "paused":
        return ended.typed.command("check")
    if ended.finished.status == "failed":
        return shlex.join(["less", str(shown / files.LOG)])
    return shlex.join(["less", str(shown / files.REPORT)])
