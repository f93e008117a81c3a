"""Where the master key is read from, and what is refused as one."""

import base64
from pathlib import Path

import pytest

from gepa_service.secrets import master_key
from gepa_service.secrets.master_key import MasterKey, MasterKeyError, create_key_file, master_keys

KEY = base64.b64encode(b"k" * 32).decode()
OLD = base64.b64encode(b"o" * 32).decode()
KEYS = (MasterKey(b"k" * 32), MasterKey(b"o" * 32))


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def of_file(path: Path) -> tuple[MasterKey, ...]:
    return master_keys({"GEPA_SERVICE_MASTER_KEY_FILE": str(path)})


def test_keys_are_read_from_a_file_a_variable_or_a_command_the_present_one_first(tmp_path: Path) -> None:
    path = written(tmp_path / "key", f"{KEY}\n{OLD}\n")
    assert of_file(path) == KEYS
    assert master_keys({"GEPA_SERVICE_MASTER_KEY": f"{KEY}\n{OLD}"}) == KEYS
    assert master_keys({"GEPA_SERVICE_MASTER_KEY_COMMAND": f"cat '{path}'"}) == KEYS


@pytest.mark.parametrize("mode", [0o640, 0o606])
def test_a_file_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path / "key", KEY, mode)
    with pytest.raises(MasterKeyError, match=r"chmod 600"):
        of_file(path)


@pytest.mark.parametrize("text", ["", "short", KEY[:-1], base64.b64encode(b"k" * 31).decode()])
def test_a_text_that_is_no_key_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    with pytest.raises(MasterKeyError, match="openssl rand") as raised:
        of_file(written(tmp_path / "key", text))
    assert not text.strip() or text.strip() not in str(raised.value)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("echo secret >&2; exit 3", "status 3"),
        ("echo nonsense", "openssl"),
        ("true", "empty"),
        ("sleep 60", "no master"),
    ],
)
def test_a_command_that_prints_no_key_is_an_error_without_what_it_printed(
    command: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_key, "COMMAND_S", 0.5 if "sleep" in command else 30)
    with pytest.raises(MasterKeyError, match=message) as raised:
        master_keys({"GEPA_SERVICE_MASTER_KEY_COMMAND": command})
    assert "nonsense" not in str(raised.value)
    assert "secret >" not in str(raised.value)


def test_the_environment_names_exactly_one_source(tmp_path: Path) -> None:
    path = written(tmp_path / "key", KEY)
    for wrong in ({}, {"GEPA_SERVICE_MASTER_KEY": KEY, "GEPA_SERVICE_MASTER_KEY_FILE": str(path)}):
        with pytest.raises(MasterKeyError, match="set one of") as raised:
            master_keys(wrong)
        assert KEY not in str(raised.value)


def test_a_new_key_file_is_its_owners_and_never_replaces_one(tmp_path: Path) -> None:
    path = tmp_path / "key"
    create_key_file(path)
    first = of_file(path)
    create_key_file(path)
    assert of_file(path) == first
    assert list(path.parent.iterdir()) == [path]
