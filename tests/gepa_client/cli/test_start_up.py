"""The command is there at once and loads only what the chosen path uses."""

import json
import resource
import subprocess
import sys

from tests.gepa_client.conftest import Cli, Serve, environment
from tests.gepa_client.word_program import Script

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


def loaded(*arguments: str) -> set[str]:
    """The top-level modules that a command line has imported in the end."""
    ended = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(json.loads(ended.stdout.splitlines()[-1]))


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


def test_version_is_the_packages_own(cli: Cli) -> None:
    from importlib.metadata import version

    assert cli("--version").stdout.startswith(f"evolverpc {version('evolverpc')} (Python package in ")
