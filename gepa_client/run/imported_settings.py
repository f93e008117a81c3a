"""The settings of an imported run: settings that name servers, secrets or files of the other machine are left out."""

from collections.abc import Mapping
from typing import Any

from gepa_client.settings.groups import SandboxSettings, ServerSettings, TrackingSettings
from gepa_client.settings.loading import from_record
from gepa_client.settings.older import upgraded
from gepa_client.settings.secrets import NOT_RECORDED, left_out

MACHINE_SETTINGS = frozenset(
    {
        # these servers get this user's token and rows
        *(key for key in ServerSettings.model_fields if key not in ("max_attempts", "max_outage_s")),
        # what is started here, with which of the user's variables and credentials
        *SandboxSettings.model_fields,
        # and here the user's keys, in files and accounts of the user's
        *TrackingSettings.model_fields,
        *("stop_file", "output", "store", "lease_s"),
    }
)
"""Settings that an imported file does not choose."""

MODEL_ARGUMENTS = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "seed", "n", "stop", "logit_bias"),
        *("max_tokens", "max_completion_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty"),
        *("reasoning_effort", "thinking", "verbosity"),
        *("timeout", "request_timeout", "max_attempts", "pause_s", "drop_params"),
    }
)
"""Arguments of a reflection model that an imported file may set: how it answers and how long it may take.

Any other argument may redirect the request and its key (`api_base`, `azure_endpoint`, `proxy`, `extra_headers`, ...).
"""


def imported_settings(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that another machine recorded, as they may be recorded here.

    Settings that name servers, secrets or files are left out. Arguments of the reflection model that are not in
    `MODEL_ARGUMENTS` are marked as not recorded, so that `resume` requires them.

    Raises:
        SettingsError: a setting is unknown or has a wrong type.
    """
    kept: dict[str, Any] = {key: value for key, value in upgraded(recorded).items() if key not in MACHINE_SETTINGS}
    arguments = kept.get("reflection_lm_kwargs")
    if isinstance(arguments, dict):
        kept["reflection_lm_kwargs"] = {key: _harmless(key, value) for key, value in arguments.items()}
    config = from_record(kept, {}, must_end=False, calls=False)
    read = {key: value for key, value in config.recorded().items() if key not in MACHINE_SETTINGS}
    return read | {key: value for key, value in kept.items() if left_out(key, value)}


def _harmless(key: str, value: Any) -> Any:
    """Return the argument if it cannot redirect a request; else the mark for a value that was not recorded."""
    return value if key in MODEL_ARGUMENTS or value is None else NOT_RECORDED
