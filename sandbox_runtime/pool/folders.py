"""Folders for fleet files: private, and removed by whoever finds that their owner is gone."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from evolverpc_common.process_identity import Owner
from evolverpc_common.remove_tree import remove_tree
from sandbox_runtime.backends.records import is_private, private_folder, sockets_folder

OWNER = "owner.json"


@contextlib.contextmanager
def fleet_folder(root: Path | None = None) -> Iterator[Path]:
    """A new folder of this user's alone, for a `RosterFile`; it is gone after the block.

    `root`: in place of the folder that the environment names.

    Raises:
        OSError: it cannot be made.
    """
    folder = private_folder(_root(root)) / secrets.token_hex(6)
    making = folder.with_name(f".{folder.name}")
    making.mkdir(mode=0o700)
    (making / OWNER).write_text(Owner.this_process().model_dump_json())
    making.rename(folder)  # nobody ever finds one without its owner
    try:
        yield folder
    finally:
        remove_tree(folder)


def fleet_folders(root: Path | None = None) -> list[Path]:
    """Return the folders of this user's sessions; those of ended processes may be among them."""
    fleets = _root(root)
    if not is_private(fleets.parent) or not is_private(fleets):
        return []
    return sorted(folder for folder in fleets.iterdir() if not folder.name.startswith(".") and is_private(folder))


def sweep_folders(root: Path | None = None) -> None:
    """Remove those of processes that are certainly gone; nothing where somebody else may have put them there."""
    fleets = _root(root)
    if is_private(fleets.parent) and is_private(fleets):
        for folder in list(fleets.iterdir()):
            if is_private(folder) and _is_orphan(folder):
                remove_tree(folder)


def _is_orphan(folder: Path) -> bool:
    try:
        return Owner.model_validate_json((folder / OWNER).read_bytes()).is_gone()
    except (OSError, ValidationError):
        return False  # being made or removed just now, or none of ours


def _root(root: Path | None) -> Path:
    return (root or sockets_folder()) / "fleets"
