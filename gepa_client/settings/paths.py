"""Which settings name files, and how they become absolute."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gepa_client.settings.sandbox_settings import is_remote

PATHS = ("token_file", "fleet", "score_token_file", "output", "git_token_file", "github_app_key_file")
ROWS = ("trainset", "valset", "testset")
ROW_SUFFIXES = (".json", ".jsonl", ".csv")


def is_file(rows: str) -> bool:
    """Whether `rows` names a file rather than a split the server holds."""
    return rows.lower().endswith(ROW_SUFFIXES)


def rooted(values: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """The settings with every path in them relative to `root`; what is of the wrong kind stays as it is."""
    found = dict(values)
    for key, value in values.items():
        if key == "stop_callbacks" and isinstance(value, list | tuple):
            found[key] = [_stopper(item, root) for item in value]
        elif isinstance(value, str | Path) and _is_path(key, str(value)):
            found[key] = str(root / value)
    return found


def _is_path(key: str, value: str) -> bool:
    if key in ROWS:
        return is_file(value)
    if key == "repo":
        return not is_remote(value)
    return key in PATHS or (key == "store" and "://" not in value)


def _stopper(item: Any, root: Path) -> Any:
    if isinstance(item, str) and item.startswith("file:"):
        return f"file:{root / item.removeprefix('file:')}"
    return item
