"""Settings as the words of a command line."""

import json
from typing import Any

from evolverpc_common.settings.definition import json_object
from gepa_client.settings.run_config import SETTINGS
from gepa_client.settings.secret_settings import without_secrets


def flag_words(name: str, value: Any) -> list[str]:
    """Return the flag of a setting and its value, without secrets. `value`: not None; a list repeats the flag."""
    setting = SETTINGS[name]
    if isinstance(value, bool):
        return [setting.flag if value or setting.negation is None else setting.negation]
    if setting.parse is json_object and isinstance(value, str):
        value = json_object(value)
    if isinstance(value, dict):
        value = json.dumps(without_secrets(name, value))
    if name == "store":
        value = without_secrets(name, value)
    if setting.parse is not None and isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    words = []
    for item in map(str, value if isinstance(value, list | tuple) else [value]):
        words += [f"{setting.flag}={item}"] if item.startswith("-") else [setting.flag, item]
    return words
