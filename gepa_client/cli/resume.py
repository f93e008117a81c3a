"""`gepa-client resume RUN`: goes on where a run stopped, having told GEPA again what it was told before."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from gepa_client.cli import flags
from gepa_client.cli.console import fail, make
from gepa_client.cli.exit_status import USAGE
from gepa_client.cli.running import Running
from gepa_client.cli.stored import RunName, opened_run
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.opening import default_store
from gepa_client.run import folder as files
from gepa_client.run.config import RunConfig
from gepa_client.run.settings import SettingsError, from_record

COMMAND = flags.SettingsCommand


def resume(run: str, url: list[str] | None, config: Path | None, json_events: bool, **given: Any) -> None:
    """Go on with a run that paused, failed, was cancelled or killed; with more of a budget, also with a complete one.

    Servers, concurrency, budgets and deadlines may be others than before. What would make it another run is refused,
    with what differs; `gepa-client fork` lets a run of its own go on from there.

    Ends as `gepa-client optimize` does.
    """
    where = default_store(given["store"])
    with opened_run(given["store"], run) as (_, found):
        pass
    try:
        settings = from_record(found.config, {**given, "url": url or None}, config)
        _refuse_less(found, settings)
        output = files.open_again(Path(found.output) if found.output else files.RUNS / found.id)
    except (SettingsError, OSError) as error:
        fail(str(error))
        raise typer.Exit(USAGE) from error
    running = Running(
        settings=settings,
        store=where,
        store_typed=given["store"],
        run_id=found.id,
        output=output,
        json_events=json_events,
        console=make(),
        hash_seed=(found.identity or {}).get("hash_seed") or "0",
        wish=found.wish,
    )
    raise typer.Exit(running.run())


def _refuse_less(run: StoredRun, settings: RunConfig) -> None:
    """Raise SettingsError for a budget that would end the run before what it has done."""
    budget, before = settings.max_metric_calls, run.config.get("max_metric_calls")
    done = run.counters.get("metric_calls", 0)
    if budget is not None and budget < done and (before is None or budget < before):
        raise SettingsError(
            f"--max-metric-calls {budget} is less than the {done} metric calls that are recorded of run {run.id}: "
            f"give {done} or more to go on, or use `gepa-client fork {run.id} --at N` for a run that ends sooner"
        )


def _with_flags() -> None:
    """Give the command its signature: typer reads the flags from it."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    servers = Annotated[list[str] | None, typer.Argument(metavar="URL", help="Other servers than the run's.")]
    file = Annotated[Path | None, typer.Option("--config", "-c", help="Settings as TOML, over the recorded ones.")]
    events = Annotated[bool, typer.Option("--json", help="Print events as JSON lines, a summary last.")]
    own = [
        inspect.Parameter("run", keyword, annotation=RunName),
        inspect.Parameter("url", keyword, default=None, annotation=servers),
        inspect.Parameter("config", keyword, default=None, annotation=file),
        inspect.Parameter("json_events", keyword, default=False, annotation=events),
    ]
    names = [name for name in flags.setting_names() if name not in ("output", "no_check")]
    resume.__signature__ = inspect.Signature([*own, *flags.parameters(names)])  # type: ignore[attr-defined]


_with_flags()
