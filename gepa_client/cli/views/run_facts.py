"""The facts of a stored run as label and plain text, and its failed examples."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from gepa_client.analysis.failed_examples import ROWS_LISTED
from gepa_client.analysis.gepa_result import best_candidate
from gepa_client.cli.views.console import duration, echo, safe, safe_line, seconds_since
from gepa_client.journal.entries import SEARCH, CandidateRecord, StoredRun
from gepa_client.journal.history import discovery, end_of, row_counts
from gepa_client.journal.run_events import FailedExamples
from gepa_client.journal.store import Store
from gepa_client.report import summary_fields as fields

ELSEWHERE = frozenset({"url", "fleet", "name", "output", "store", "max_metric_calls"})
"""Settings that have a line of their own, or do not describe the run."""

SHOWN = 80
"""Characters of one value that are shown."""

DIGEST = re.compile(r"[0-9a-f]{32}")
DIGEST_SHOWN = 8


def run_facts(
    store: Store, run: StoredRun, candidates: Sequence[CandidateRecord], *, full: bool
) -> list[tuple[str, str]]:
    """Return the known facts, line by line. `full`: no value is cut."""
    lines = [
        ("reason", run.reason),
        ("name", run.name),
        ("program", _program(discovery(store, run.id))),
        ("servers", _servers(run.config)),
        ("rows", ", ".join(f"{size} {split}" for split, size in row_counts(store, run.id).items())),
        ("score", _score_fact(candidates)),
        ("metric calls", _calls(run.counters, run.config.get("max_metric_calls"))),
        ("time", _time(run)),
        ("driven by", run.driver if run.claim.owner is not None else None),
        ("asked for", run.requested_action),
        ("forked from", f"{run.parent['run']} at {run.parent['at']}" if run.parent else None),
        ("settings", _settings(run.config, full=full)),
        ("identity", _identity(run.identity or {}, full=full)),
        ("journal", _journal(store, run)),
        ("results in", run.output),
    ]
    return [(label, text) for label, text in lines if text]


def _program(described: Mapping[str, Any] | None) -> str | None:
    if described is None:
        return None
    program, server = described["program"], described["server"]
    version = f", version {program['version']}" if program.get("version") else ""
    return f"{program['name']}{version}, behind {server['name']} {server['version']} ({server['language']})"


def _servers(config: Mapping[str, Any]) -> str:
    urls = config.get("url") or []
    named = [urls] if isinstance(urls, str) else list(urls)
    return ", ".join(named + ([f"those in {config['fleet']}"] if config.get("fleet") else []))


def _score_fact(candidates: Sequence[CandidateRecord]) -> str | None:
    best = best_candidate(candidates)
    if best is None:
        return None
    which = "the seed itself" if best.index == candidates[0].index else f"candidate {best.index}"
    return f"{candidates[0].score:.4g} -> {best.score:.4g} ({which}, {len(best.scores)} validation rows)"


def _calls(counters: Mapping[str, Any], budget: int | None) -> str | None:
    if "metric_calls" not in counters:
        return None
    of = f" of {budget:,}" if budget is not None else ""
    iteration = f", iteration {counters['iteration']:,}" if counters.get("iteration") is not None else ""
    return f"{counters['metric_calls']:,}{of}{iteration}"


def _time(run: StoredRun) -> str:
    active = run.counters.get("active_seconds")
    worked = f"active for {duration(active)}; " if active is not None else ""
    moments = [
        ("created", run.created if run.started is None else None),
        ("started", run.started),
        (run.status, run.completed),
        ("last sign of life", run.updated if run.completed is None else None),
    ]
    return worked + ", ".join(f"{what} {duration(seconds_since(at))} ago" for what, at in moments if at is not None)


def _journal(store: Store, run: StoredRun) -> str:
    entries, end = store.parts(run.id).get(SEARCH, 0), end_of(store, run.id, SEARCH)
    return f"{entries:,} entries" if entries == end else f"{entries:,} entries, numbered up to {end:,}"


def _settings(config: Mapping[str, Any], *, full: bool) -> str:
    """Return the settings that differ from their defaults."""
    changed = fields.changed_settings(config)
    return _flat({name: value for name, value in changed.items() if name not in ELSEWHERE}, full=full)


def _identity(identity: Mapping[str, Any], *, full: bool) -> str:
    """Return the fingerprint without the settings, which have a line of their own."""
    known = {name: value for name, value in identity.items() if name != "settings" and value not in (None, False)}
    return _flat(dict(_leaves(known)), full=full)


def _leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values within mappings by their path, such as `data.train`."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _flat(values: Mapping[str, Any], *, full: bool) -> str:
    """Return `seed 3, module_selector all`, on one line."""
    return ", ".join(f"{name} {_value(value, full=full)}" for name, value in values.items())


def _value(value: Any, *, full: bool) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if full:
        return text
    if DIGEST.fullmatch(text):
        return text[:DIGEST_SHOWN]
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def show_failures(console: Console, run_id: str, failed: FailedExamples | None, *, full: bool) -> None:
    """Print every type with its rows, its candidates and the first traceback. `full`: all listed rows."""
    if failed is None:
        echo(console, f"[bold]{safe_line(run_id)}[/]: no example failed in the program")
        return
    counts = safe_line(fields.failure_summary(failed), fields.LONGEST_FAILURE)
    echo(console, f"[bold]{safe_line(run_id)}[/]: failed examples: {counts}")
    for group in failed.groups:
        echo(console, f"\n[bold red]{safe_line(fields.failure_name(group), 200)}[/]")
        echo(
            console,
            safe_line(
                fields.failure_places(group, ROWS_LISTED if full else fields.FAILURES_NAMED), fields.LONGEST_FAILURE
            ),
        )
        message, *traceback = fields.first_failure(group).splitlines()
        echo(console, safe(message))
        if traceback:
            echo(console, f"[dim]{safe(chr(10).join(traceback))}[/]")
    if not full and any(group.row_count > fields.FAILURES_NAMED for group in failed.groups):
        echo(console, "\n[dim]--full names more rows[/]")
