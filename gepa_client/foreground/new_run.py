"""The way of a new run to its record: what would end it is looked for, a few rows are tried, and then it is stored."""

from collections.abc import Callable

from evolverpc_common.settings.sources import SettingsError
from gepa_client.check.preflight import preflight
from gepa_client.errors import ClientError, summary
from gepa_client.foreground.foreground_run import create_run
from gepa_client.foreground.program_check import run_check
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.store import default_store, open_store
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.shell_arguments import GivenArguments
from gepa_client.views.console import USAGE, fail
from protocol.errors import RpcError


def checked_run(
    settings: RunConfig,
    run_id: str,
    typed: GivenArguments,
    resumed_by: str | None,
    *,
    json_output: bool = False,
    on_failure: Callable[[str], None] = fail,
) -> StoredRun | int:
    """Check the servers and a few rows, and return the record of the new run; else an exit status.

    `resumed_by`: as of `create_run`. `on_failure`: gets why no run may start.
    """
    where = default_store(settings.store)
    try:
        preflight(settings)
        open_store(where).close()  # a store that cannot be used is found before anything is paid for
        if settings.check != "off":
            status = run_check(settings, typed, json_output=json_output, brief=True, on_failure=on_failure)
            if status != 0:
                return status
        return create_run(settings, where, run_id, resumed_by)
    except (SettingsError, ClientError, RpcError) as error:
        on_failure(summary(error))
        return USAGE
