"""Settings as the words of a command line."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolverpc_common.display_text import shell_line
from evolverpc_common.settings.definition import json_object
from gepa_client.settings.run_config import CHECK_SETTINGS, SETTINGS
from gepa_client.settings.secret_settings import without_secrets


def flag_arguments(name: str, value: Any) -> list[str]:
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


@dataclass(frozen=True)
class GivenArguments:
    """What the user typed: the URLs, the file of settings, and the flags by the names of their settings."""

    urls: tuple[str, ...]
    config: Path | None
    given: Mapping[str, Any]

    def command(self, name: str, **instead: Any) -> str:
        """Return `evolverpc NAME` with what was typed, to paste into a shell; `instead` replaces or adds flags.

        Flags and URLs that the command does not take are left out, and secrets are not repeated.
        """
        words = [name, *self.urls]
        if self.config is not None:
            words += ["--config", str(self.config)]
        for setting, value in {**self.given, **instead}.items():
            if value is not None and (name != "check" or setting in CHECK_SETTINGS):
                words += flag_arguments(setting, value)
        return shell_line(words)
