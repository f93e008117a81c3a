"""The final summary of a run: its status, its files, the next command, and the scores."""

import json
import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from evolverpc_common.printed_commands import command
from gepa_client.certificate.certificate import shortfall
from gepa_client.evolution.checkout import holds_commit
from gepa_client.evolution.names import code_label
from gepa_client.journal.run_events import Finished
from gepa_client.report import summary_fields as fields
from gepa_client.report.no_improvement import no_improvement, unused_iterations
from gepa_client.report.proposed_texts import copied_summary, unusable_summary
from gepa_client.report.run_record import Headline, RunRecord
from gepa_client.report.steering_fields import steered_kinds, steered_summary
from gepa_client.run import output_folder as files
from gepa_client.settings.run_config import RunConfig
from gepa_client.views.calling_program import by_typescript
from gepa_client.views.console import echo, echo_next, fail, safe, safe_line
from gepa_client.views.exit_statuses import NOT_MET, PAUSED, STOPPED, USAGE
from protocol.code import code_at

EXIT = {"completed": 0, "failed": 1, "paused": PAUSED, "cancelled": STOPPED, "refused": USAGE}
"""Exit status by the status of the run."""

_NO_SEED = "the run ended before the seed was scored"

TYPES_SHOWN = 5
"""Types of failures that are shown; rows of each, and lines of its first traceback, and of its log, from the end."""
ROWS_SHOWN = 5
LINES_SHOWN = 8

LABELS = {
    files.BEST_CANDIDATE: "best candidate",
    files.RESULT: "result",
    files.CERTIFICATE: "certificate",
    files.REPORT: "report",
    files.LOG: "log",
}


@dataclass(frozen=True)
class RecordedState:
    """What is recorded of a run that ended before all of it was replayed. `files`: those of an earlier end."""

    headline: Headline
    metric_calls: int
    files: list[str]


@dataclass(frozen=True)
class RunSummary:
    """A run that has ended; `written`: names in `output`, `seconds` since this command began.

    `store`: as it was typed. `replayed`: from its record. `by_hand`: the user stopped it. `resumed_by`: what continues
    it, None for the command. `typed`: the command that resumed it, to be given again if the run could not start.
    `recorded`: None if `record` has all that is recorded.
    """

    settings: RunConfig
    run_id: str
    store: str | None
    output: Path | None
    record: RunRecord
    finished: Finished
    written: list[str]
    seconds: float
    replayed: bool
    by_hand: bool
    resumed_by: str | None = None
    typed: str | None = None
    recorded: RecordedState | None = None

    @property
    def headline(self) -> Headline | None:
        """The scores of the whole run; None before any score."""
        return self.record.headline() if self.recorded is None else self.recorded.headline

    @property
    def metric_calls(self) -> int:
        """The metric calls of the whole run."""
        return self.record.metric_calls if self.recorded is None else self.recorded.metric_calls

    @property
    def falls_short(self) -> bool:
        """Whether a complete run lacks the certificate that its settings require."""
        required, found = self.settings.require, self.record.certificate
        if required is None or self.finished.status != "completed":
            return False
        return found is None or shortfall(required, found.verdict, found.leaks) is not None

    @property
    def exit_status(self) -> int:
        """The exit status; a replay succeeds if its record ends."""
        if self.falls_short and not self.replayed:
            return NOT_MET
        if self.replayed and self.finished.status not in ("failed", "refused") and self.record.started is not None:
            return 0
        return STOPPED if self.by_hand and self.finished.status == "paused" else EXIT[self.finished.status]

    @property
    def begun(self) -> bool:
        """False for a run that could not start or resume: only the reason is printed."""
        if self.finished.status == "refused":
            return False
        unreachable = self.finished.status == "paused" and self.finished.details is None and not self.by_hand
        return self.record.started is not None or not unreachable


def as_json(ended: RunSummary) -> dict[str, Any]:
    """Return the last line of `--json`."""
    headline = ended.headline
    return {
        "event": "summary",
        "run_id": ended.run_id,
        "name": ended.settings.name,
        "status": ended.finished.status,
        "reason": ended.finished.reason,
        "rows": headline.rows if headline is not None else None,
        "seed_score": headline.seed if headline is not None else None,
        "best_score": headline.best if headline is not None else None,
        "metric_calls": ended.metric_calls,
        "verdict": ended.record.certificate.verdict if ended.record.certificate is not None else None,
        "raced_out": ended.record.races.lost,
        "saved_calls": ended.record.races.saved,
        "best_code": code_label(ended.record.best.texts) if ended.record.best is not None else None,
        "model_calls": calls.total.model_dump(mode="json") if (calls := ended.record.model_calls) is not None else None,
        "refused": fields.refusal_count(ended.record),
        "failed_examples": ended.record.failed_examples.failed if ended.record.failed_examples is not None else 0,
        "retried_examples": ended.record.retried.examples if ended.record.retried is not None else 0,
        "steered": len(steered_kinds(ended.record)),
        "unusable_answers": ended.record.unusable.model_dump(mode="json"),
        "copied_examples": ended.record.copied.count if ended.record.copied is not None else 0,
        "spent_usd": ended.record.spent_usd,
        "seconds": round(ended.seconds, 3),
        "active_seconds": round(ended.record.active_seconds, 3),
        "output": None if ended.output is None else str(ended.output),
        "files": ended.written,
        "exit_status": ended.exit_status,
    }


def show(ended: RunSummary, console: Console) -> None:
    """Print the summary, the scores in the last line; only an error on stderr for a run that did not start."""
    finished = ended.finished
    if not ended.begun:
        fail(finished.reason or "the run was not begun")
        if finished.status == "paused" and not ended.replayed:
            echo_next(console, ended.resumed_by or ended.typed or _next_command(ended), f"{'next':<15}")
            if ended.typed is not None and ended.resumed_by is None:
                echo(console, "[dim]if a server has started again at another address, add its URL and --token-file[/]")
        return
    lines: list[str | Text] = []
    if finished.reason is not None:
        colour = {"failed": "red", "completed": "green"}.get(finished.status, "yellow")
        reason = f"{finished.status}: {finished.reason}"
        shown_reason = _between_words(safe(reason), console).replace(":", ":[/]", 1)
        lines.append(Text.from_markup(f"[{colour}]{shown_reason}"))  # a wrapped command in it is not named again
        if finished.details:
            lines.append(f"[dim]{safe(finished.details.rstrip())}[/]")
    lines += _failed_examples(ended)
    if ended.output is not None:
        shown = _shown(ended.output)
        lines += [f"{LABELS[name]:<15} {safe(str(shown / name))}" for name in [*ended.written, files.LOG]]
        improved = ended.record.best is not None and ended.record.best.index != 0
        certificate = ended.record.certificate
        if improved and certificate is not None and certificate.verdict == "worse":
            lines.append(f"{'use it':<15} no: the test rows show that it is worse than the seed")
        elif files.BEST_CANDIDATE in ended.written and improved and not ended.replayed:
            lines.append(f"{'use it':<15} {safe(_load_call(ended.record, shown))}")
    if ended.record.mutations and ended.record.best is not None:
        lines.append(f"{'best code':<15} {safe_line(code_label(ended.record.best.texts) or '')}")
        lines.append(f"{'all code':<15} {safe(command('branches', ended.run_id, store=ended.store))}")
    lines += [
        f"{label:<15} {_wrapped(safe_line(text), console)}"
        for label, text in (
            ("retries", fields.retry_summary(ended.record.retried)),
            ("results reused", fields.reuse_summary(ended.record)),
            ("steered", steered_summary(steered_kinds(ended.record))),
            ("raced out", fields.race_summary(ended.record.races)),
            ("compared", fields.tie_summary(ended.record.ties) if ended.record.ties is not None else None),
            ("model calls", fields.model_call_summary(ended.record)),
            ("refused", _refused(ended.record)),
            ("not used", unusable_summary(ended.record.unusable)),
            ("copied", copied_summary(ended.record.copied)),
        )
        if text is not None
    ]
    lines += [f"{label:<15} {_wrapped(safe_line(text, 1000), console)}" for label, text in _certified(ended)]
    if not ended.replayed and ended.recorded is None:
        unused = unused_iterations(ended.record)
        for label, text in [*([("unused", unused)] if unused else []), *no_improvement(ended.record)]:
            lines.append(f"[yellow]{label:<15}[/] {_wrapped(safe_line(text, 600), console)}")
    for shown_line in lines:
        console.print(shown_line, soft_wrap=True)
    echo_next(console, _next_command(ended), f"{'next':<15}")
    echo(console, score_line(ended))


def _wrapped(text: str, console: Console) -> str:
    """Return the text beside its label, wrapped between words on a terminal."""
    if not console.is_terminal:
        return text
    return f"\n{' ' * 16}".join(textwrap.wrap(text, max(console.width - 16, 20), break_on_hyphens=False))


def _between_words(text: str, console: Console) -> str:
    """Return the text with its lines wrapped between words on a terminal, with their indentation."""
    if not console.is_terminal:
        return text
    wrapped = []
    for one in text.split("\n"):
        indent = " " * (len(one) - len(one.lstrip()))
        wrapped += textwrap.wrap(
            one, console.width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
        ) or [one]
    return "\n".join(wrapped)


def score_line(ended: RunSummary) -> str:
    """Return `python: score 0.00 -> 0.91, 412 metric calls, 6.2 s (60 test rows)`, as markup."""
    prefix = f"{safe(ended.settings.name)}: " if ended.settings.name else ""
    headline = ended.headline
    if headline is None:
        return f"{prefix}no score: {_NO_SEED}, {ended.seconds:.1f} s"
    if ended.recorded is not None:
        return (
            f"{prefix}score [bold]{headline.seed:.2f} -> {headline.best:.2f}[/], {ended.metric_calls:,} metric calls "
            f"({headline.rows}), as recorded: this ended before it had replayed them, and nothing is lost"
        )
    used, budget = ended.record.metric_calls, ended.record.budget
    calls = f"{used:,} metric calls" + (
        fields.budget_note(ended.record) if budget is not None and used > budget else ""
    )
    if more := ended.record.uncounted:
        calls += f" ({more} more results are recorded, of a batch that counts when it is complete)"
    return (
        f"{prefix}score [bold]{headline.seed:.2f} -> {headline.best:.2f}[/], {calls}, "
        f"{_seconds(ended)} ({headline.rows})"
    )


def _seconds(ended: RunSummary) -> str:
    """Return the seconds that the run was driven, as in the report; of a replay, its own."""
    if ended.replayed:
        return f"{ended.seconds:.1f} s"
    resumed = ended.record.started is not None and ended.record.started.resumed
    return f"{ended.record.active_seconds:.1f} s{' in all' if resumed else ''}"


def _failed_examples(ended: RunSummary) -> list[str]:
    """Return lines about failed examples: their number by type, the first of each, and the command that lists all."""
    failed = ended.record.failed_examples
    if failed is None:
        return []
    lines = [f"[yellow]{'failed':<15} {safe_line(fields.failure_summary(failed))}[/]"]
    for group in failed.groups[:TYPES_SHOWN]:
        name, where = fields.failure_name(group), fields.failure_places(group, ROWS_SHOWN)
        first, *more = fields.first_failure(group, LINES_SHOWN).splitlines()
        lines.append(f"  {safe_line(name, 200)}: {safe_line(where, 1000)}")
        if (messages := fields.failure_messages(group)) is not None:
            lines.append(f"    {safe_line(messages, 1000)}")
        lines.append(f"    {safe_line(first, 1000)}")
        lines += [f"[dim]    {safe(text)}[/]" for text in more[-(2 * LINES_SHOWN + 1) :]]
    lines.append(f"{'all failures':<15} {safe_line(command('show', ended.run_id, '--failures', store=ended.store))}")
    return lines


def _certified(ended: RunSummary) -> list[tuple[str, str]]:
    """Return whether the gain is certified, why it is not if it could be, and which rows the best contains."""
    record = ended.record
    found = record.certificate
    if found is None:
        reason = record.no_certificate
        return [("no certificate", reason)] if reason and (record.sealed or ended.settings.require) else []
    copied = [("copied rows", fields.leak_summary(found.leaks))] if found.leaks.rows else []
    missing = shortfall(ended.settings.require, found.verdict, found.leaks)
    return [("gain", found.statement), *([("not met", missing)] if missing else []), *copied]


def _refused(record: RunRecord) -> str | None:
    """Return how often something was refused, and the first of it."""
    times = fields.refusal_summary(record)
    first = f", the first {fields.refusal_text(record.refusals[0])}" if record.refusals else ""
    return f"{times}{first}" if times is not None else None


def _shown(output: Path) -> Path:
    """Return the folder as the user would type it."""
    return output.relative_to(Path.cwd()) if output.is_relative_to(Path.cwd()) else output


def _load_call(record: RunRecord, output: Path) -> str:
    """Return the call that loads the best candidate, in the language of the program."""
    in_typescript = by_typescript.get() or fields.is_typescript(record)
    return f"{'loadCandidate' if in_typescript else 'evolverpc.load_candidate'}({json.dumps(str(output))})"


def _next_command(ended: RunSummary) -> str:
    if ended.replayed:
        return command("show", ended.run_id, store=ended.store)
    if ended.finished.status in ("paused", "cancelled") or ended.finished.resume_with:
        return ended.resumed_by or command("resume", ended.run_id, *ended.finished.resume_with, store=ended.store)
    if ended.output is None or ended.finished.status == "failed":
        log = ended.output / files.LOG if ended.output is not None else None
        return shlex.join(["less", str(_shown(log))]) if log is not None else command("runs", store=ended.store)
    if _runs_other_code(ended.record):
        repo = ended.settings.repo
        seed = code_at(ended.record.seed.texts)[1] if ended.record.seed is not None else None
        if repo is not None and Path(repo).is_dir():
            return command("branches", ended.run_id, "--check-out", "--repo", repo, store=ended.store)
        if seed is not None and holds_commit(Path(), seed):
            return command("branches", ended.run_id, "--check-out", store=ended.store)
        return command("branches", ended.run_id, store=ended.store)
    return command("watch", ended.run_id, store=ended.store)


def _runs_other_code(record: RunRecord) -> bool:
    """Return whether the best candidate runs other code than the seed."""
    seed, best = record.seed, record.best
    return seed is not None and best is not None and code_at(seed.texts)[1] != code_at(best.texts)[1]
