"""Variables that are nearly those of settings."""

import pytest

from evolverpc_common.settings.sources import from_environment
from gepa_client.settings.run_config import SETTINGS as CLIENT
from rpc_server.settings import SETTINGS as SERVER


@pytest.mark.parametrize(("own", "others"), [(CLIENT, SERVER), (SERVER, CLIENT)])
def test_variables_of_the_other_command_and_of_the_process_are_left_alone(own, others, tmp_path):
    further = ("GEPA_TOKEN", "GEPA_LISTEN", "GEPA_ALLOWED_HOSTS", "GEPA_STORE", "GEPA_READY_JSON", "GEPA_CLIENT")
    variables = [*further, *(each.variable for each in others.values() if each.variable is not None)]
    assert from_environment(own, dict.fromkeys(variables, ""), tmp_path).values == {}
