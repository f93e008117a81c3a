"""Write `docs/settings.md` and the types of Python's `optimize`; `--check` compares them."""

import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from evolverpc.local_server import SERVER as OF_SERVER
from evolverpc.optimization import KEYWORDS
from evolverpc_common.settings.definition import Setting, SettingsGroup
from gepa_client.settings.run_config import SETTINGS as CLIENT
from gepa_client.settings.run_config import RunConfig
from rpc_server.settings import SETTINGS as SERVER
from rpc_server.settings import Settings

ROOT = Path(__file__).resolve().parent.parent

HEAD = """\
# Settings

<!-- Written by scripts/settings_reference.py from the settings' definitions: do not edit. -->

Every setting is a flag, a key of a TOML file and an environment variable of one name: `--max-seconds 60`,
`max_seconds = 60`, `GEPA_MAX_SECONDS=60`. **A flag has precedence over a variable, a variable over the file, the file
over the default.** `evolverpc resume` and `fork` take the settings that the run recorded, below all others.

`evolverpc optimize`, `check` and `resume` read the file that `--config` names. `evolverpc serve` reads the file of
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
`evolverpc serve`. `GEPA_MEMORY_MB` is the memory that a server and its program may use, `GEPA_PROGRAM_PYTHON`
the interpreter of a Python program in a sandbox.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_section("evolverpc optimize", CLIENT), *_section("evolverpc serve", SERVER)])


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


def module() -> str:
    """Return the module of types."""
    head = '"""Written by scripts/settings_reference.py from the settings\' definitions: do not edit."""'
    imports = (
        "from collections.abc import Sequence\nfrom pathlib import Path\nfrom typing import Any, Literal, TypedDict"
    )
    name = (
        "class OptimizeSettings(TypedDict, total=False):\n"
        '    """Settings of a run and of its server, which docs/settings.md describes."""\n'
    )
    run = _typed(RunConfig, [name for name in KEYWORDS if name not in OF_SERVER])
    return "\n".join([head, "", imports, "\n", name, *run, *_typed(Settings, OF_SERVER), ""])


def _typed(model: type[SettingsGroup], settings: Iterable[str]) -> Iterator[str]:
    for each in settings:
        yield f"    {each}: {' | '.join(dict.fromkeys(_types(model.model_fields[each].annotation)))}"


def _types(annotation: Any) -> Iterator[str]:
    """Yield what a value of this annotation may be, as source."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _types(arguments[0])
    elif origin in (Union, types.UnionType):
        for part in arguments:
            yield from _types(part)
    elif origin is Literal:
        choices = ", ".join(f'"{value}"' for value in arguments)
        yield f"Literal[{choices}]"
    elif origin is tuple:
        yield f"Sequence[{next(_types(arguments[0]))}]"
        if arguments[0] is str:
            yield "str"
    elif origin is dict:
        yield f"dict[str, {next(_types(arguments[1]))}]"
    elif annotation is Path:
        yield from ("Path", "str")
    elif annotation is float:
        yield "float"
    elif annotation is type(None):
        yield "None"
    elif annotation is Any or (isinstance(annotation, type) and issubclass(annotation, SettingsGroup)):
        yield "Any"
    else:
        yield annotation.__name__


def main(arguments: list[str]) -> int:
    """Write both files, or compare them; returns the exit status."""
    status = 0
    files = {
        "docs/settings.md": page(),
        "evolverpc/settings_types.py": module(),
    }
    for path, text in files.items():
        file = ROOT / path
        if arguments != ["--check"]:
            file.write_text(text, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != text:
            print(f"{path} differs from the settings: run python -m scripts.settings_reference", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
