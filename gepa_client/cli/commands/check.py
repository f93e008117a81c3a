"""`evolverpc check`: try a server on a few rows, compare others with it; prints tables, or one JSON object."""

from pathlib import Path
from typing import Any

import typer

from evolverpc_common.settings.sources import SettingsError
from gepa_client.check.preflight import preflight_model
from gepa_client.cli.sandbox_start import sandboxed, show_findings
from gepa_client.foreground.program_check import run_check
from gepa_client.settings.loading import load
from gepa_client.settings.shell_arguments import GivenArguments
from gepa_client.views.console import refuse

CHECK = "check"
"""The run id in the labels of a check's sandboxes."""


def check(
    url: list[str] | None,
    config: Path | None,
    json_output: bool,
    examples: int,
    repeats: int,
    verbose: bool,
    **given: Any,
) -> None:
    """Check servers, or one in a sandbox if the settings name a repository."""
    try:
        settings = load(config, {"url": url, **given}, must_end=False)
        preflight_model(settings)
    except SettingsError as error:
        refuse(str(error))
    typed = GivenArguments(tuple(url or ()), config, given)
    with sandboxed(settings, CHECK, typed.command("check"), quiet=json_output, count=1) as sandboxes:
        status = run_check(
            sandboxes.settings, typed, json_output=json_output, examples=examples, repeats=repeats, verbose=verbose
        )
        show_findings(sandboxes)
    raise typer.Exit(status)
