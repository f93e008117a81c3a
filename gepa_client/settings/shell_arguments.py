"""Settings as the words of a command line, among them those that continue a completed run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolverpc_common.display_text import shell_line
from evolverpc_common.settings.definition import json_object
from gepa_client.journal.entries import StoredRun
from gepa_client.settings.run_config import CHECK_SETTINGS, ENDINGS, SETTINGS
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


NO_LIMIT = "no limit ended it, so no flag continues it"


def flags_to_continue(run: StoredRun) -> list[str]:
    """Return flags by which a resume continues a completed run; none if no limit ended it.

    A limit is raised from its value or, if it would then still be reached, from what the run used.
    """
    ended_by = (run.reason or "").partition(" ")[0]
    if ended_by not in ("perfect_score", *ENDINGS):
        return []
    flags = [SETTINGS["past_perfect"].flag] if ended_by == "perfect_score" else []
    reached = run.counters | ({} if run.best is None else {"score": run.best["score"]})
    for name, limit in ENDINGS.items():
        given, used = run.config.get(name), reached.get(limit.counter)
        if name == ended_by or (given is not None and used is not None and used >= given):
            larger = (2 * value if limit.doubled else value + 0.05 for value in (given, used) if value is not None)
            flags += [SETTINGS[name].flag, f"{next(value for value in larger if used is None or value > used):.15g}"]
    return flags
