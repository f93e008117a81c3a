"""The record of a run as the page gets it, with the commands that a user may type next."""

from collections.abc import Iterator, Mapping
from typing import Any

from evolverpc_common.printed_commands import command, without_password
from gepa_client.journal.entries import RESUMED_BY, StoredRun
from gepa_client.page.initial_rows import InitialRows
from gepa_client.page.moment_events import CommandHint, ParentRun, Run
from gepa_client.selection.search_rows import rows_searched
from protocol.code import CODE_COMPONENTS, GIT_BRANCH


def run_event(
    run: StoredRun,
    rows: InitialRows,
    *,
    end: int,
    url: str,
    named: str | None,
    driven: bool,
) -> Run:
    """Return the event.

    `end`: the entries of the search. `url`: of the store; `named`: what commands call it. `driven`: a process drives
    the run.
    """
    declared, program, config = rows.declared or {}, rows.program, run.config
    seed = program.get("seed_candidate") or {}
    offered = GIT_BRANCH in seed and "mutations" in (declared.get("capabilities") or [])
    return Run(
        run_id=run.id,
        name=run.name,
        status=run.status,
        reason=run.reason,
        program=run.program or program.get("name"),
        program_version=program.get("version"),
        created=run.created,
        started=run.started,
        completed=run.completed,
        settings={name: value for name, value in config.items() if name != RESUMED_BY},
        budget=run.counters.get("max_metric_calls", config.get("max_metric_calls")),
        components=[*(name for name in seed if name not in CODE_COMPONENTS)],
        splits=rows.splits,
        sampled=_sampled(config, rows),
        evolve=config.get("evolve") or ("both" if offered else "prompts"),
        reflection_model=config.get("reflection_lm"),
        output=run.output,
        parent=_parent(run.parent),
        driver=run.driver,
        driven=driven,
        store=without_password(url),
        commands=list(_commands(run, named, end=end, has_code=GIT_BRANCH in seed)),
    )


def _sampled(config: Mapping[str, Any], rows: InitialRows) -> int | None:
    if not str(config.get("validation")).startswith("race:") or rows.val is rows.train:
        return None
    searched = rows_searched(len(rows.val), int(config["validation"].split(":")[1]))
    return searched if searched < len(rows.val) else None


def _parent(parent: dict[str, Any] | None) -> ParentRun | None:
    if parent is None:
        return None
    at = parent.get("at")
    return ParentRun(run=str(parent.get("run")), at=at if isinstance(at, int) else None)


def _commands(run: StoredRun, store: str | None, *, end: int, has_code: bool) -> Iterator[CommandHint]:
    if run.status == "running":
        yield CommandHint(
            command=command("pause", run.id, store=store), what="stop the run; `evolverpc resume` continues it"
        )
        yield CommandHint(
            command=command("cancel", run.id, store=store),
            what="stop the run and mark it as cancelled; its results are kept, and `evolverpc resume` continues it",
        )
    if run.status in ("paused", "failed"):
        resumed = run.resumed_by or command("resume", run.id, store=store)
        yield CommandHint(command=resumed, what="continue the run; nothing that is recorded is paid for again")
    yield CommandHint(command=command("show", run.id, store=store), what="print the run with its best candidate")
    if has_code:
        branches = command("branches", run.id, store=store)
        yield CommandHint(command=branches, what="list all changes of code; --diff N prints one of them")
    if end:
        fork = command("fork", run.id, "--at", str(end), store=store)
        yield CommandHint(
            command=fork, what=f"make a new run that begins with all {end:,} recorded entries of this one"
        )
