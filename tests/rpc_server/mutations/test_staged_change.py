"""A staged change's files by paths of every kind, and folders that an agent left unusable."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from evolverpc_common.git import GitError
from rpc_server.worktrees.repository import UserRepository
from rpc_server.worktrees.staged_change import EditableFiles, StagedChange, UncommittableFiles
from tests.rpc_server.mutations.project import Project

LIMIT = 1_000_000


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, links=True)


@pytest.fixture
def draft(project: Project, tmp_path: Path) -> Iterator[StagedChange]:
    draft = StagedChange(UserRepository(project.folder), tmp_path / "draft", project.first)
    draft.open()
    yield draft
    draft.close()
    assert not (tmp_path / "draft").exists()


def test_what_is_no_file_has_no_content(draft: StagedChange) -> None:
    assert draft.content("notes/dos.txt") == b"one\r\ntwo\r\nthree\r\n"
    assert [draft.content(path) for path in ("notes", "nowhere", "notes/one.txt/x", "inner/one.txt")] == [None] * 4


def test_a_file_that_git_cannot_read_is_not_one_that_is_not_there(draft: StagedChange, tmp_path: Path) -> None:
    (tmp_path / "draft/index").write_bytes(b"rubbish")
    with pytest.raises(GitError, match="index"):
        draft.content("app.py")


def test_a_file_keeps_its_mode_and_a_folder_is_not_written(draft: StagedChange) -> None:
    draft.write("tools/run.sh", b"#!/bin/sh\n")
    assert [(file.path, file.mode) for file in draft.changes().files] == [("tools/run.sh", "100755")]
    with pytest.raises(GitError):
        draft.write("tools", b"x")
    with pytest.raises(GitError, match="symbolic link"):
        draft.write("notes/link.txt", b"x")


def test_files_that_cannot_be_cleared_are_not_taken_back(draft: StagedChange, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = EditableFiles(draft)

    def refuses(_: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("rpc_server.worktrees.staged_change.remove_tree", refuses)
    with pytest.raises(UncommittableFiles, match="Operation not permitted"):
        checkout.collect(LIMIT, [])


def test_a_staged_change_that_cannot_be_removed_is_logged_and_left(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(_: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    draft = StagedChange(UserRepository(project.folder), tmp_path / "left", project.first)
    draft.open()
    monkeypatch.setattr("rpc_server.worktrees.server_folder.remove_tree", refuses)
    draft.close()
    assert "Operation not permitted" in caplog.text
