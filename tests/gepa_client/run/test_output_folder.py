"""The files of a program in the run's folder, from a tar that cannot be trusted."""

import io
import tarfile
from pathlib import Path

from gepa_client.run.output_folder import ARTIFACT_FILES, unpack_artifacts


def packed(*entries: tuple[str, bytes, str]) -> bytes:
    """A tar of entries: a name, its content, and the kind `tarfile` has for it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, data, kind in entries:
            entry = tarfile.TarInfo(name)
            entry.size, entry.type, entry.linkname = len(data), kind.encode(), "/etc/passwd"
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


FILE, HARD_LINK, LINK, FIFO = "0", "1", "2", "6"


def test_links_devices_and_paths_outside_are_left_out_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "artifacts"
    tar = packed(
        ("./kept.json", b"kept", FILE),
        ("../out.json", b"bad", FILE),
        ("/abs.json", b"bad", FILE),
        ("link", b"", LINK),
        ("link/through", b"bad", FILE),
        ("hard", b"", HARD_LINK),
        ("pipe", b"", FIFO),
        ("deep/" * 65 + "file", b"bad", FILE),
    )
    copied, left_out = unpack_artifacts(tar, folder)
    assert copied == ["kept.json", "link/through"]
    assert [each.partition(" ")[0] for each in left_out[:-1]] == ["../out.json", "/abs.json", "link", "hard", "pipe"]
    assert left_out[-1].startswith("deep/deep/")
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"out/artifacts/kept.json", "out/artifacts/link/through"}


def test_too_many_files_and_a_tar_that_was_cut_off_are_reported(tmp_path: Path) -> None:
    many = packed(*((f"{number}", b"", FILE) for number in range(ARTIFACT_FILES + 1)))
    copied, left_out = unpack_artifacts(many, tmp_path / "many")
    assert (len(copied), left_out) == (ARTIFACT_FILES, [f"what is beyond {ARTIFACT_FILES} files"])
    large = packed(("first", b"1", FILE), ("second", b"2" * 5000, FILE))
    copied, left_out = unpack_artifacts(large[:4096], tmp_path / "large")
    assert copied == ["first"]
    assert left_out == ["what is beyond the largest size of all together"]
