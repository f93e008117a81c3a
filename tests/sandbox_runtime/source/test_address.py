"""What users may write for a repository, and what they may not."""

from pathlib import Path

import pytest

from sandbox_runtime.source.repository_address import LocalRepository, RemoteRepository, address


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("https://github.com/o/r", RemoteRepository("https://github.com/o/r", "")),
        ("https://github.com/o/r.git#packages/a/", RemoteRepository("https://github.com/o/r.git", "packages/a")),
        ("ssh://git@example.com:22/o/r", RemoteRepository("ssh://git@example.com:22/o/r", "")),
        ("git@github.com:o/r.git", RemoteRepository("ssh://git@github.com/o/r.git", "")),
        ("file:///srv/r#a", RemoteRepository("file:///srv/r", "a")),
        ("http://127.0.0.1:1/r", RemoteRepository("http://127.0.0.1:1/r", "")),
        ("some/folder", LocalRepository(Path("some/folder"))),
        (".", LocalRepository(Path())),
    ],
)
def test_paths_and_urls_are_distinguished(text: str, meant: LocalRepository | RemoteRepository) -> None:
    assert address(text) == meant


WRONG = (
    "http://example.com/r",
    "ext::sh://x",
    "https:///r",
    "https://example.com/r#../outside",
    "https://example.com/r#/absolute",
    "https://user@example.com/r",
    "~no-such-user/program",
)


def test_an_address_that_is_neither_a_path_nor_a_url_is_refused() -> None:
    for text in WRONG:
        with pytest.raises(ValueError, match=r"URL|host|folder"):
            address(text)
