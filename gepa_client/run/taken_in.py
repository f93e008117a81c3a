"""The settings of a run that comes from elsewhere: what belongs to the machine it came from stays there."""

from collections.abc import Mapping
from typing import Any

from gepa_client.run.config import ServerSettings, TrackingSettings
from gepa_client.run.sandbox_settings import SandboxSettings
from gepa_client.run.secrets import NOT_RECORDED, left_out
from gepa_client.run.settings import from_record

STAY = frozenset(
    {
        # whoever is named here gets this user's token and rows
        *(key for key in ServerSettings.model_fields if key not in ("max_attempts", "max_outage_s")),
        # what is started here, with which of the user's variables and credentials
        *SandboxSettings.model_fields,
        # and here the user's keys, in files and accounts of the user's
        *TrackingSettings.model_fields,
        *("output", "store", "lease_s"),
    }
)
"""Settings that a file from elsewhere does not choose."""

ADDRESSES = frozenset({"api_base", "base_url"})
"""Arguments of a reflection model that say who is sent its key."""


def taken_in(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as another machine recorded them, as they may be recorded here.

    Who is called, with which secrets, and which files are written or looked at is left out. Where a reflection model is
    reached is marked as not recorded, so that `resume` asks for it instead of asking somebody else.

    Raises:
        SettingsError: a setting is unknown, or is none of its kind.
    """
    kept: dict[str, Any] = {key: value for key, value in recorded.items() if key not in STAY}
    stops = kept.get("stop_callbacks")
    if isinstance(stops, list):
        kept["stop_callbacks"] = [stop for stop in stops if not (isinstance(stop, str) and stop.startswith("file:"))]
    kept = {
        key: _without_addresses(key, value) if key == "reflection_lm_kwargs" else value for key, value in kept.items()
    }
    config = from_record(kept, {}, must_end=False, calls=False)
    read = {key: value for key, value in config.recorded().items() if key not in STAY}
    return read | {key: value for key, value in kept.items() if left_out(key, value)}


def _without_addresses(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {inner: _without_addresses(inner, part) for inner, part in value.items()}
    if isinstance(value, list):
        return [_without_addresses(key, part) for part in value]
    is_address = key in ADDRESSES or (isinstance(value, str) and "://" in value)
    return NOT_RECORDED if is_address and value is not None else value
