"""Starters of frameworks get better by two components, with few lines changed, against a scripted model."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sandbox_runtime import ServerEndpoint
from tests.rpc_server.program.conftest import needs_node
from tests.support.forked_client import ForkServer

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ROOT / "examples" / "frameworks"
NAMES = sorted(path.parent.name for path in FRAMEWORKS.glob("*/starter.toml"))
MOST_LINES = 15
SMALLEST_GAIN = 0.2
"""On the validation rows: `ai-sdk` gains 0.21, the others more."""
LAST_LINE = re.compile(
    r"(\S+): validation (\d\.\d\d) -> (\d\.\d\d), test (\d\.\d\d -> \d\.\d\d), \d+ metric calls, "
    r"(\d+) lines of the starter changed"
)
MODELS = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
VARIABLES = {"LITELLM_LOCAL_MODEL_COST_MAP": "1", "MASTRA_TELEMETRY_DISABLED": "1"}
IN_MAKE_TEST = "openai"
Run = Callable[..., tuple[int, str]]

pytestmark = pytest.mark.timeout(600)  # the first run installs the frameworks


@pytest.fixture(scope="module")
def frameworks() -> Iterator[dict[str, ModuleType]]:
    """The modules of `examples/frameworks` by name."""
    sys.path.insert(0, str(FRAMEWORKS))
    yield {name: importlib.import_module(name) for name in ("run", "starter", "scripted_model")}
    sys.path.pop(0)


@pytest.fixture
def run(
    frameworks: dict[str, ModuleType],
    fork_server: ForkServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Run:
    """Run an example in this process, its server and the command as forks; returns the exit status and the output."""
    script = frameworks["run"]

    def serving(command: Sequence[str], *, cwd: Path, env: Any) -> AbstractContextManager[ServerEndpoint]:
        one = {} if cwd.name == "dspy" else {"GEPA_WORKERS": "1"}  # a program of DSPy has one process anyway
        return fork_server.running_server(*command[1:], cwd=cwd, env={**env, **one})

    def command(words: Sequence[str], *, env: Any, check: bool) -> None:
        status, stdout, stderr = fork_server.run(words[1:], folder=tmp_path, environment=env, timeout_s=500)
        print(stdout.decode(), stderr.decode())
        assert status == 0, (stdout + stderr).decode()

    def begin(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
        status = script.main()
        return status, "".join(capfd.readouterr())

    for name in MODELS:
        monkeypatch.delenv(name, raising=False)
    for name, value in {**VARIABLES, "PYTHONDONTWRITEBYTECODE": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(script, "running_server", serving)
    monkeypatch.setattr(script, "subprocess", SimpleNamespace(run=command))
    monkeypatch.chdir(tmp_path)
    return begin


def table(page: Path, head: str) -> list[list[str]]:
    """The cells of the table of a page that begins so, without its line of dashes."""
    text = page.read_text()
    lines = text[text.index(head) :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def marks(name: str) -> list[pytest.MarkDecorator]:
    in_node = (FRAMEWORKS / name / "package.json").is_file()
    return [needs_node] * in_node + [pytest.mark.long] * (name != IN_MAKE_TEST)


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in NAMES])
def test_a_starter_with_at_most_fifteen_lines_changed_gets_better(run: Run, name: str) -> None:
    status, output = run(name)
    assert status == 0, output
    printed = LAST_LINE.fullmatch(output.splitlines()[-1])
    assert printed is not None, output
    assert float(printed[3]) - float(printed[2]) >= SMALLEST_GAIN
    assert shown_in_table(name) == [printed[5], printed[4]], "the table of README.md"
    texts = output[output.index("\n\n") :]
    changed = [block for block in re.split(r"\n\n(?=\S+:\n)", texts) if "\n  + " in block]
    assert len(changed) == 2, "both components are to change"


def shown_in_table(name: str) -> list[str]:
    """The number of lines changed and the scores of the test split, in the table of all examples."""
    [row] = [row for row in table(FRAMEWORKS / "README.md", "| framework |") if row[0].startswith(f"[{name}]")]
    return row[2:]


@pytest.mark.parametrize("name", NAMES)
def test_the_patch_of_an_example_changes_at_most_fifteen_lines(frameworks: dict[str, ModuleType], name: str) -> None:
    changed = frameworks["starter"].Example(name).lines_changed()
    assert changed <= MOST_LINES
    assert shown_in_table(name)[0] == str(changed)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_an_example_shows_the_lines_of_its_patch(name: str) -> None:
    [shown] = re.findall(
        r"^```diff\n(.*?)^```", (FRAMEWORKS / name / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    patch = (FRAMEWORKS / name / "optimise.patch").read_text().partition("\n@@")[2]
    changed = re.compile(r"^[+-].*\S.*$", re.MULTILINE)
    assert changed.findall(shown) == changed.findall(patch)


def test_a_starter_that_is_not_the_one_that_was_patched_is_refused(frameworks: dict[str, ModuleType]) -> None:
    starter = frameworks["starter"]
    with pytest.raises(starter.NotPrepared, match="another sha256"):
        starter.fetch(Path(__file__).as_uri(), "0" * 64)
    with pytest.raises(starter.NotPrepared, match="could not be fetched"):
        starter.fetch("http://127.0.0.1:1/", "0" * 64)
