"""Flags are the settings; what GEPA takes and we replace is refused with the reason."""

from collections.abc import Callable

import pytest

from gepa_client.cli import flags
from gepa_client.run.config import RunConfig
from tests.gepa_client.conftest import Ran


def test_every_setting_is_a_flag_of_the_same_name() -> None:
    names = [parameter.name for parameter in flags.parameters(flags.setting_names())]
    assert sorted([*names, "url"]) == sorted(RunConfig.model_fields)


@pytest.mark.parametrize("flag", ["--run-dir=x", "--use-cloudpickle", "--no-use-cloudpickle"])
def test_an_option_of_gepa_that_is_replaced_is_refused_as_a_flag_with_the_reason(
    cli: Callable[..., Ran], flag: str
) -> None:
    for command in ("optimize", "check"):
        ended = cli(command, "http://127.0.0.1:9", flag)
        assert ended.status == 2
        assert "cannot be set" in ended.stderr
        assert "pickled" in ended.stderr
