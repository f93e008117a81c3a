"""Records of sandboxes: later processes find them, and what is left of their sandboxes."""

import json
import os
from pathlib import Path

import pytest

from sandbox_runtime import SandboxError
from sandbox_runtime.backends.records import SandboxRecords, is_private, private_folder, sockets_folder, state_folder


@pytest.fixture
def records(tmp_path: Path, short: Path) -> SandboxRecords:
    return SandboxRecords("process", state=tmp_path / "state", sockets=short)


def test_a_record_is_read_as_it_was_written(records: SandboxRecords, tmp_path: Path) -> None:
    (killed := tmp_path / "state/sandboxes/process/.0123456789ab").mkdir(parents=True)  # while it made a record
    os.utime(killed, (0, 0))
    record = records.add({"run": "r1"})
    assert not killed.exists()
    (read,) = SandboxRecords("process", state=tmp_path / "state", sockets=tmp_path / "elsewhere").all()
    assert read == record
    assert (read.labels, read.is_orphan) == ({"run": "r1"}, False)
    assert all(is_private(folder) for folder in (read.folder, read.sockets))
    assert str(os.getpid()) in read.found().owner


@pytest.mark.parametrize(
    "text", ["", "{", "[]", json.dumps({"labels": {"A": 1}}), "[" * 100_000, '{"version": 2, "owner": "another kind"}']
)
def test_a_record_that_cannot_be_read_is_listed_and_neither_an_orphan_nor_ended(
    records: SandboxRecords, text: str
) -> None:
    record = records.add({"run": "r1"})
    (record.folder / "record.json").write_text(text)
    (found,) = records.all()
    assert (found.id, found.is_orphan, found.labels) == (record.id, False, {})
    assert "cannot be read" in found.found().owner
    assert records.all({"run": "r1"}) == []
    with pytest.raises(SandboxError, match=str(record.folder)):
        records.free(record.id, lambda _: pytest.fail("it was ended"))
    assert record.folder.exists() and record.sockets.exists()


def test_sockets_elsewhere_than_in_a_folder_of_their_own_are_not_removed(
    records: SandboxRecords, tmp_path: Path
) -> None:
    record = records.add({})
    path = record.folder / "record.json"
    stored = json.loads(path.read_text())
    (tmp_path / "precious").mkdir()
    for sockets in (str(tmp_path / "precious"), f"../{record.id}"):
        path.write_text(json.dumps({**stored, "sockets": sockets}))
        (found,) = records.all()
        assert found.sockets == record.sockets
    records.remove(found)
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize("labels", [{"A": "x"}, {"": "x"}, {"a/b": "x"}, {"a": "x" * 64}, {"a": "x\n"}])
def test_labels_are_short_and_plain(records: SandboxRecords, labels: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="label"):
        records.add(labels)
    assert records.all() == []


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("open", "link"):
        with pytest.raises(PermissionError):
            private_folder(tmp_path / name)


def test_the_environment_selects_the_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    assert (state_folder(), sockets_folder()) == (tmp_path / "evolverpc", short / "evolverpc")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_folder() == tmp_path / ".local/state/evolverpc"
    assert sockets_folder().name == f"evolverpc-{os.getuid()}"
