"""A recorded run that continues: its settings and its folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evolverpc_common.settings.sources import SettingsError
from gepa_client.journal.entries import StoredRun
from gepa_client.run import output_folder as files
from gepa_client.settings.loading import from_record
from gepa_client.settings.run_config import RunConfig


def settings_again(run: StoredRun, given: Mapping[str, Any], config: Path | None) -> RunConfig:
    """Return the settings of a run that continues, those `given` over those recorded.

    Raises:
        SettingsError: as `from_record`, or the budget is less than the metric calls made.
    """
    settings = from_record(run.config, given, config)
    budget, before = settings.max_metric_calls, run.config.get("max_metric_calls")
    done = run.counters.get("metric_calls", 0)
    if budget is not None and budget < done and (before is None or budget < before):
        raise SettingsError(
            f"`max_metric_calls` {budget} is less than the {done} metric calls that are recorded of run {run.id}: "
            f"give {done} or more to continue, or fork it where it had made fewer"
        )
    return settings


def output_again(run: StoredRun) -> Path:
    """Return the folder of a run that continues, made if it has none yet. Raises `OSError`."""
    return files.open_again(Path(run.output)) if run.output else files.open_new(run.id)
