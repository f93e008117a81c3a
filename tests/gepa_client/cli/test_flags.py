"""Flags are the settings; what GEPA takes and we replace is refused with the reason."""

import inspect
from collections.abc import Callable

import pytest

from gepa_client.cli import flags
from gepa_client.settings.run_config import RunConfig
from tests.gepa_client.conftest import Ran


def test_every_setting_is_a_flag_of_the_same_name() -> None:
    parameters = inspect.signature(flags.declared("optimize")).parameters
    assert set(RunConfig.model_fields) <= set(parameters)


def test_a_command_to_paste_repeats_what_was_typed_as_far_as_the_command_takes_it() -> None:
    given = {
        "score_with": ["http://127.0.0.1:3"],
        "store": "mongodb://me:hush@somewhere/runs",
        "seed": 3,
        "no_check": True,
    }
    typed = flags.Typed(("http://127.0.0.1:1", "http://127.0.0.1:2"), None, given)
    assert typed.command("check") == "gepa-client check http://127.0.0.1:1 --score-with http://127.0.0.1:3"
    optimize = typed.command("optimize", patience=4)
    assert optimize.startswith("gepa-client optimize http://127.0.0.1:1 http://127.0.0.1:2 --score-with http")
    assert optimize.endswith("--seed 3 --no-check --patience 4")
    assert "hush" not in optimize


@pytest.mark.parametrize("flag", ["--run-dir=x", "--use-cloudpickle", "--no-use-cloudpickle"])
def test_an_option_of_gepa_that_is_replaced_is_refused_as_a_flag_with_the_reason(
    cli: Callable[..., Ran], flag: str
) -> None:
    for command in ("optimize", "check"):
        ended = cli(command, "http://127.0.0.1:9", flag)
        assert ended.status == 2
        assert "cannot be set" in ended.stderr
        assert "pickled" in ended.stderr
