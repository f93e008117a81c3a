"""The command is there at once and loads only what the chosen path uses."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gepa_client.conftest import Cli, Serve, environment
from tests.gepa_client.word_program import Script

UNREACHABLE = "http://127.0.0.1:9"
HEAVY = ("litellm", "gepa", "aiohttp", "modal", "claude_agent_sdk", "openai", "anthropic")

PROBE = """
import json, sys
from gepa_client.cli import main
sys.argv = ["evolverpc", *json.loads(sys.argv[1])]
try:
    main()
except SystemExit:
    pass
print("\\n" + json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""


def probed(*arguments: str, variables: dict[str, str]) -> tuple[set[str], str]:
    """The top-level modules that a command line has imported in the end, and its stderr."""
    ended = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(arguments)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(json.loads(ended.stdout.splitlines()[-1])), ended.stderr


def loaded(*arguments: str) -> set[str]:
    return probed(*arguments, variables=environment())[0]


def test_help_loads_nothing_heavy_and_no_models() -> None:
    assert not loaded("--help") & {*HEAVY, "pydantic", "protocol", "rich"}
    assert not loaded("optimize", "--bad-flag") & set(HEAVY)


def test_help_takes_less_than_four_tenths_of_a_second_of_cpu() -> None:
    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "gepa_client", "--help"],
            env=environment(),
            capture_output=True,
            timeout=60,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(once() for _ in range(2)) < 0.4


def test_a_check_loads_neither_the_optimizer_nor_a_model(serve: Serve, words: Script) -> None:
    assert not loaded("check", serve(words)) & (set(HEAVY) - {"aiohttp"})


def test_all_that_a_run_lacks_is_named_at_once_and_litellm_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.jsonl").write_text('{"text": "a"}\n')
    words = ("optimize", UNREACHABLE, "--trainset", "traim.jsonl", "--reflection-lm", "openai/gpt-5", "--auto", "light")
    variables = {name: value for name, value in environment().items() if not name.startswith("OPENAI_")}
    modules, errors = probed(*words, variables=variables)
    assert "traim.jsonl: no such file in" in errors
    assert "did you mean train.jsonl?" in errors
    assert "openai/gpt-5 needs a key: set OPENAI_API_KEY" in errors
    assert UNREACHABLE in errors
    assert "litellm" not in modules
    assert not (tmp_path / "runs").exists()


def test_version_is_the_packages_own(cli: Cli) -> None:
    from importlib.metadata import version

    assert cli("--version").stdout.startswith(f"evolverpc {version('evolverpc')} (Python package in ")
