"""Write `docs/settings.md` from the settings' definitions; `--check` only compares it."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from evolverpc_common.settings.definition import Setting
from gepa_client.settings.run_config import SETTINGS as CLIENT
from rpc_server.settings.settings import SETTINGS as SERVER

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

HEAD = """\
# Settings

<!-- Written by scripts/settings_reference.py from the settings' definitions: do not edit. -->

Every setting is a flag, a key of a TOML file and an environment variable of one name: `--max-seconds 60`,
`max_seconds = 60`, `GEPA_MAX_SECONDS=60`. **A flag has precedence over a variable, a variable over the file, the file
over the default.** `gepa-client resume` and `fork` take the settings that the run recorded, below all others.

`gepa-client optimize`, `check` and `resume` read the file that `--config` names. `gepa-server` reads the file of
`--config`, else `gepa.toml`, else `[tool.gepa]` of `pyproject.toml` in the working directory. A relative path in a file
starts in the file's folder, in a flag or variable in the working directory.

| kind of value | flag | variable | file |
|---|---|---|---|
| yes or no | `--jail`, `--no-jail` | `yes`, `no` | `true`, `false` |
| several | `--models a --models b` | `a,b` | `["a", "b"]` |
| table | `--env A=1 --env B=2`, or JSON | `A=1,B=2`, or JSON | `{ A = "1", B = "2" }` |
| command | `--check-command 'make test'` | `make test` | `["make", "test"]` |

Variables that are no settings: `GEPA_TOKEN` is the token of the servers (or of this server) unless a `token_file` is
given. `GEPA_LISTEN` (`HOST:PORT`, or `fd:3` for a listening socket) takes the place of `host` and `port` in a file.
`GEPA_ALLOWED_HOSTS` adds hosts to `allowed_hosts`, separated by commas. `GEPA_READY_JSON=1` is `--json` of
`gepa-server`. `GEPA_MEMORY_MB` is the memory that a server and its program may use, `GEPA_PROGRAM_PYTHON`
the interpreter of a Python program in a sandbox.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_section("gepa-client", CLIENT), *_section("gepa-server", SERVER)])


def _section(command: str, settings: Mapping[str, Setting]) -> Iterator[str]:
    yield f"## {command}\n"
    for group in dict.fromkeys(setting.group for setting in settings.values()):
        yield f"### {group}\n"
        for setting in settings.values():
            if setting.group == group:
                yield _entry(setting)


def _entry(setting: Setting) -> str:
    spelled = [f"`{setting.usage}`", f"`{setting.variable}`" if setting.variable else "no variable"]
    spelled[:1] = spelled[:1] if setting.name != "url" else ["an argument"]
    return f"**`{setting.name}`**: {setting.description}\n{', '.join(spelled)}. Default: {setting.default_text}.\n"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it; returns the exit status."""
    if arguments != ["--check"]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    print("docs/settings.md differs from the settings: run python -m scripts.settings_reference", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
