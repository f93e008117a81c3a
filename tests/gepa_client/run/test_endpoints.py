"""The servers of a run are those of its URLs and of its fleet file, each with its own token."""

from pathlib import Path

import pytest

from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import ConnectionLost, Refused
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.run.resolved_settings import endpoints
from gepa_client.settings.run_config import RunConfig

FIRST, SECOND, THIRD = (f"http://127.0.0.1:{port}" for port in (1, 2, 3))


def test_urls_come_first_then_the_fleet_file(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.txt"
    fleet.write_text(f"{THIRD} token-file=third\n")
    found = endpoints(RunConfig(url=(FIRST, SECOND), token_file=Path("mine"), fleet=fleet))
    assert [(address.url, address.token_file) for address in found] == [
        (FIRST, Path("mine")),
        (SECOND, Path("mine")),
        (THIRD, tmp_path / "third"),
    ]


def test_an_absent_or_empty_fleet_file_is_an_error(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.txt"
    with pytest.raises(Refused, match="no such file"):
        endpoints(RunConfig(fleet=fleet))
    fleet.write_text("# no server yet\n")
    with pytest.raises(SettingsError, match="names no server"):
        endpoints(RunConfig(fleet=fleet))
    assert len(endpoints(RunConfig(url=(FIRST,), fleet=fleet))) == 1


def test_an_empty_fleet_of_sandboxes_or_of_a_run_that_has_begun_is_a_lost_connection(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.txt"
    fleet.write_text("")
    with pytest.raises(ConnectionLost, match="being replaced"):
        endpoints(RunConfig(repo=str(tmp_path), fleet=fleet))
    with pytest.raises(ConnectionLost, match="names no server any more"):
        RemoteAdapter(fleet_file=fleet)
