"""Settings about commands that there are none of."""

import pytest

from rpc_server.settings.code_settings import CodeChangeSettings


@pytest.mark.parametrize("of", ["build", "check"])
def test_how_long_a_command_may_take_means_nothing_without_one(of: str) -> None:
    given = {"allow_mutations": True, f"{of}_timeout_s": 5.0}
    with pytest.raises(ValueError, match=f"`{of}_timeout_s` needs `{of}_command`"):
        CodeChangeSettings.model_validate(given)
    assert CodeChangeSettings.model_validate({**given, f"{of}_command": ("true",)}).has_trees
