"""Where the token comes from, and where it must not be."""

import stat
from pathlib import Path

import pytest

from evolverpc_common.settings.sources import SettingsError
from rpc_server.cli.listen_endpoint import token_for
from rpc_server.settings import Settings


def settings(**given: object) -> Settings:
    return Settings.model_validate({"program": "x", **given})


def test_a_random_token_lives_in_a_private_file_until_the_end() -> None:
    with token_for(settings(), {}) as token, token_for(settings(), {}) as other:
        assert token.file is not None
        assert token.file.read_text().strip() == token.value
        assert stat.S_IMODE(token.file.stat().st_mode) == 0o600
        assert stat.S_IMODE(token.file.parent.stat().st_mode) == 0o700
        assert len(token.value) > 30
        assert token.value != other.value
        assert not token.given
    assert not token.file.parent.exists()


def test_a_token_from_the_environment_is_taken_out_of_it() -> None:
    environment = {"GEPA_TOKEN": "given", "OTHER": "x"}
    with token_for(settings(host="box.example"), environment) as token:
        assert (token.value, token.given, token.file) == ("given", True, None)
    assert environment == {"OTHER": "x"}


def test_a_token_file_goes_before_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    environment = {"GEPA_TOKEN": "given"}
    with token_for(settings(root=tmp_path, token_file="token"), environment) as token:
        assert (token.value, token.given) == ("from-file", True)
    assert environment == {}


@pytest.mark.parametrize("text", ["", "  \n", "two words", "tökén", "a\x00b"])
def test_a_token_that_no_header_can_carry_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(SettingsError, match="token"), token_for(settings(token_file=tmp_path / "token"), {}):
        pass


def test_a_token_file_that_is_not_there_is_made_and_stays_for_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with token_for(settings(token_file=path), {}) as token:
        assert path.read_text() == token.value + "\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert len(token.value) > 30
        assert (token.file, token.given) == (path, True)
    with token_for(settings(token_file=path), {}) as again:
        assert again.value == token.value
    assert list(tmp_path.iterdir()) == [path]
