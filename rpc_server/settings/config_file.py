"""Read a server's settings: flags over environment variables over `gepa.toml` or `[tool.gepa]` of `pyproject.toml`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evolverpc_common.settings.sources import Source, from_environment, from_file, from_flags, read_toml, validated
from rpc_server.settings.settings import GIVEN_AS, SETTINGS, Settings, concerns

CONFIG_FILE = "gepa.toml"
PROJECT_FILE = "pyproject.toml"
TABLE = "tool.gepa"


def load_settings(
    config: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    find: bool = True,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Return the settings of flags, environment variables and a configuration file, in this order of precedence.

    The file is `config`; else, if `find` is true, `gepa.toml` or a `pyproject.toml` with `[tool.gepa]` in `folder` (the
    working directory if not given). `flags` maps setting names to texts, or to values as a file would give them. Paths
    in flags and variables are relative to `folder`, those in a file to the file's own folder, which becomes `root`.

    Raises:
        SettingsError: no such file, not TOML, an unknown key, a value of the wrong kind, or no program named.
    """
    folder = folder if folder is not None else Path.cwd()
    path = config if config is not None or not find else _find(folder)
    given = _over(from_flags(SETTINGS, flags or {}, folder), from_environment(SETTINGS, environment, folder))
    if path is not None:
        given = _over(given, from_file(path, SETTINGS, TABLE if path.name == PROJECT_FILE else ""))
    root = (path.parent if path is not None else folder).absolute() / given.values.get("root", ".")
    return validated(Settings, Source({**given.values, "root": str(root)}, given.spellings))


def _over(given: Source, lower: Source) -> Source:
    """Return `given` over `lower`; another program replaces the lower one, with the settings for its kind."""
    chosen = [name for name in GIVEN_AS if name in given.values]
    if len(chosen) != 1:
        return given.over(lower)
    kind = given.values.get("kind", GIVEN_AS[chosen[0]])
    return given.over(lower, [*GIVEN_AS, "kind", *(name for name in lower.values if not concerns(name, kind))])


def _find(folder: Path) -> Path | None:
    config, project = folder / CONFIG_FILE, folder / PROJECT_FILE
    if config.is_file():
        return config
    if project.is_file() and "gepa" in read_toml(project)[1].get("tool", {}):
        return project
    return None
