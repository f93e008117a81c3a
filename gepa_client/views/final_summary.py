"""The final summary of a run: its status, its files, the next command, and the scores."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from evolverpc_common.display_text import command, counted, money, one_line
from gepa_client.certificate.certificate import caveats, shortfall
from gepa_client.evolution.candidate_names import code_label, component_texts
from gepa_client.evolution.checkout import holds_commit
from gepa_client.evolution.text_diffs import changed_words
from gepa_client.journal.run_events import Finished
from gepa_client.report import summary_fields as fields
from gepa_client.report.calling_program import use_of
from gepa_client.report.event_words import failure_summary, first_failure
from gepa_client.report.no_improvement import no_improvement
from gepa_client.run import output_folder as files
from gepa_client.run.run_view import RunView
from gepa_client.settings.run_config import RunConfig
from gepa_client.views.console import LABEL, NOT_MET, PAUSED, STOPPED, USAGE, echo, echo_facts, echo_next, fail, safe
from protocol.code import code_at

EXIT = {"completed": 0, "failed": 1, "paused": PAUSED, "cancelled": STOPPED, "refused": USAGE}
"""Exit status by the status of the run."""

_NO_SEED = "the run ended before the seed was scored"

LINES_SHOWN = 8
"""Lines of the details of a run's end, of the first failure's traceback, and of its log, from the end."""

FACT_SHOWN, CHANGE_SHOWN = 1000, 60
"""Characters of a line, and of the change of one component."""


@dataclass(frozen=True)
class RunSummary:
    """A run that has ended; `written`: names in `output`, `seconds` since this command began.

    `connected`: the driver process knew the server and the rows.
    `store`: as it was typed. `replayed`: from its record. `by_hand`: the user stopped it. `resumed_by`: what continues
    it, None for the command. `typed`: the command that resumed it, to be given again if the run could not start.
    `in_replay`: it ended before its record was replayed, and `view` is from the store.
    """

    settings: RunConfig
    run_id: str
    store: str | None
    output: Path | None
    view: RunView
    finished: Finished
    connected: bool
    written: list[str]
    seconds: float
    replayed: bool
    by_hand: bool
    resumed_by: str | None = None
    typed: str | None = None
    in_replay: bool = False

    @property
    def falls_short(self) -> bool:
        """Whether a complete run lacks the certificate that its settings require."""
        required, found = self.settings.require, self.view.certificate
        if required is None or self.finished.status != "completed":
            return False
        return found is None or shortfall(required, found.verdict, found.leaks) is not None

    @property
    def exit_status(self) -> int:
        """The exit status; a replay succeeds if its record ends."""
        if self.falls_short and not self.replayed:
            return NOT_MET
        if self.replayed and self.finished.status not in ("failed", "refused") and self.view.started is not None:
            return 0
        return STOPPED if self.by_hand and self.finished.status == "paused" else EXIT[self.finished.status]

    @property
    def begun(self) -> bool:
        """False for a run that could not start or resume: only the reason is printed."""
        if self.finished.status == "refused":
            return False
        unreachable = self.finished.status == "paused" and self.finished.details is None and not self.by_hand
        return self.connected or not unreachable


def as_json(ended: RunSummary) -> dict[str, Any]:
    """Return the last line of `--json`."""
    return {
        "event": "summary",
        "run_id": ended.run_id,
        "name": ended.settings.name,
        "status": ended.finished.status,
        "reason": ended.finished.reason,
        **ended.view.ending(),
        "seconds": round(ended.seconds, 3),
        "output": None if ended.output is None else str(ended.output),
        "files": ended.written,
        "exit_status": ended.exit_status,
    }


def show(ended: RunSummary, console: Console) -> None:
    """Print the summary, the scores in the last line; only an error on stderr for a run that did not start.

    A run that was completed has at most six lines: the page has the rest.
    """
    finished = ended.finished
    if not ended.begun:
        fail(finished.reason or "the run was not begun")
        if finished.status == "paused" and not ended.replayed:
            echo_next(console, ended.resumed_by or ended.typed or _next_command(ended), f"{'next':<{LABEL}}")
            if ended.typed is not None and ended.resumed_by is None:
                echo(console, "[dim]if a server has started again at another address, add its URL and --token-file[/]")
        return
    if finished.reason is not None:
        colour = {"failed": "red", "completed": "green"}.get(finished.status, "yellow")
        state, _, reason = safe(f"{finished.status}: {finished.reason}").partition(":")
        echo(console, f"[{colour}]{state}:[/]{reason}")
        if finished.details:
            last = "\n".join(finished.details.rstrip().splitlines()[-LINES_SHOWN:])
            console.print(f"[dim]{safe(last)}[/]", soft_wrap=True)
    if finished.status != "completed" and (failed := ended.view.failed_examples) is not None:
        for text in first_failure(failed.groups[0], LINES_SHOWN).splitlines():
            console.print(f"[dim]  {safe(text)}[/]", soft_wrap=True)
    echo_facts(console, list(_facts(ended)), FACT_SHOWN)
    echo_next(console, _next_command(ended), f"{'next':<{LABEL}}")
    echo(console, score_line(ended))


def _facts(ended: RunSummary) -> Iterator[tuple[str, str]]:
    """Yield label and text of each line between how a run ended and its scores."""
    view, best = ended.view, ended.view.best
    if (failed := view.failed_examples) is not None:
        listed = command("show", ended.run_id, "--failures", store=ended.store)
        yield "failed", f"{failure_summary(failed)}; `{listed}` lists them"
    yield from _certified(ended)
    if not ended.replayed and not ended.in_replay and (reasons := no_improvement(view)):
        words = [text if label in ("no improvement", "because") else f"{label} {text}" for label, text in reasons]
        yield "no improvement", "; ".join(words)
    if best is None or view.seed is None or best.index == 0:
        return
    if failed is None and (changes := _changes(view.seed.texts, best.texts)):
        yield "changed", changes
    if ended.output is None:
        return
    kept = files.BEST_CANDIDATE in ended.written and not ended.replayed
    if kept and (use := use_of(view, str(_shown(ended.output)), _check_out(ended))) is not None:
        yield "use it", use


def _changes(seed: dict[str, str], best: dict[str, str]) -> str:
    """Return how many words of each component the best candidate adds and removes, with the first of what it adds."""
    parts = []
    old, new = component_texts(seed), component_texts(best)
    for name in dict.fromkeys([*old, *new]):
        changed = changed_words(old.get(name, ""), new.get(name, ""))
        added, removed = (
            " ".join(words.text for words in changed if words.kind == kind).split() for kind in ("add", "del")
        )
        if added or removed:
            parts.append(f"{name} (+{len(added):,} -{len(removed):,} words): {' '.join(added)}")
    code = code_label(best)
    parts += [f"code {code}"] if code is not None and code != code_label(seed) else []
    return "; ".join(one_line(part, CHANGE_SHOWN) for part in parts)


def score_line(ended: RunSummary) -> str:
    """Return `python: score 0.00 -> 0.91, 412 metric calls, 6.2 s (60 test rows)`, as markup."""
    prefix = f"{safe(ended.settings.name)}: " if ended.settings.name else ""
    headline = ended.view.headline()
    if headline is None:
        return f"{prefix}no score: {_NO_SEED}, {ended.seconds:.1f} s"
    used, budget = ended.view.metric_calls, ended.view.budget
    if ended.in_replay:
        return (
            f"{prefix}score [bold]{headline.seed:.2f} -> {headline.best:.2f}[/], {used:,} metric calls "
            f"({headline.rows}), as recorded: this ended before it had replayed them, and nothing is lost"
        )
    calls = f"{used:,} metric calls" + (fields.budget_note(ended.view) if budget is not None and used > budget else "")
    return (
        f"{prefix}score [bold]{headline.seed:.2f} -> {headline.best:.2f}[/], {calls}, {_cost(ended.finished)}"
        f"{_seconds(ended)} ({headline.rows})"
    )


def _cost(finished: Finished) -> str:
    """Return what is known to have been spent, with a comma; empty if nothing had a price."""
    parts = (finished.evaluation_usd, finished.reflection_usd, finished.mutation_usd, finished.model_usd)
    known = sum(part or 0.0 for part in parts)
    unpriced, unreported = (sum(counts.values()) for counts in (finished.unpriced, finished.unreported))
    return f"{money(known, unpriced, unreported)}, " if known else ""


def _seconds(ended: RunSummary) -> str:
    """Return the seconds that the run was driven, as in the report; of a replay, its own."""
    if ended.replayed:
        return f"{ended.seconds:.1f} s"
    resumed = ended.view.started is not None and ended.view.started.resumed
    return f"{ended.view.active_seconds:.1f} s{' in all' if resumed else ''}"


def _certified(ended: RunSummary) -> list[tuple[str, str]]:
    """Return what the certificate states, and what weakens it, or why there is none if there could be one."""
    view = ended.view
    found = view.certificate
    if found is None:
        reason = view.no_certificate
        return [("no certificate", reason)] if reason and (view.sealed or ended.settings.require) else []
    missing = shortfall(ended.settings.require, found.verdict, found.leaks)
    leaks = fields.leak_summary(found.leaks) if found.leaks.rows else None
    rows, test = counted(found.test.rows, "sealed test row"), found.test
    verdict = f"{found.verdict} on {rows}"
    if found.verdict == "no difference" and test.best != test.seed:
        verdict = f"no difference that {rows} can show: {test.seed:.2f} -> {test.best:.2f}"
    verdict += caveats(found.by_hand, found.leaks, found.test)
    return [("gain", "; ".join(filter(None, (verdict, missing and f"not met: {missing}", leaks))))]


def _shown(output: Path) -> Path:
    """Return the folder as the user would type it."""
    return output.relative_to(Path.cwd()) if output.is_relative_to(Path.cwd()) else output


def _next_command(ended: RunSummary) -> str:
    if ended.replayed:
        return command("show", ended.run_id, store=ended.store)
    if ended.finished.status in ("paused", "cancelled") or ended.finished.resume_with:
        return ended.resumed_by or command("resume", ended.run_id, *ended.finished.resume_with, store=ended.store)
    if ended.output is None or ended.finished.status == "failed":
        log = ended.output / files.LOG if ended.output is not None else None
        return shlex.join(["less", str(_shown(log))]) if log is not None else command("runs", store=ended.store)
    return command("watch", ended.run_id, store=ended.store)


def _check_out(ended: RunSummary) -> str:
    """Return the command that checks out the code of the best candidate, or lists it if its repository is not here."""
    repo = ended.settings.repo
    seed = code_at(ended.view.seed.texts)[1] if ended.view.seed is not None else None
    if repo is not None and Path(repo).is_dir():
        return command("branches", ended.run_id, "--check-out", "--repo", repo, store=ended.store)
    if seed is not None and holds_commit(Path(), seed):
        return command("branches", ended.run_id, "--check-out", store=ended.store)
    return command("branches", ended.run_id, store=ended.store)
