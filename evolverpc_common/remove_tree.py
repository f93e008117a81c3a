"""Removes folders of programs that may have done anything in them."""

import os
import shutil
import subprocess
from pathlib import Path

_COMMANDS = (("rm", "-rf"), ("chmod", "-R", "u+rwx"), ("rm", "-rf"))
"""They manage folders thousands of levels deep, which Python's own does not; the second opens those that are closed."""


def remove_tree(folder: Path) -> None:
    """Remove a folder, however deep it is and whatever modes are in it; nothing where it is not there. Blocks.

    Links are not followed.

    Raises:
        OSError: something of it stays; what, and why.
    """
    if folder.is_symlink():
        folder.unlink()
        return
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        said = b""
        for command in _COMMANDS:
            if not os.path.lexists(folder):
                return
            said = subprocess.run([*command, "--", str(folder)], capture_output=True, check=False).stderr  # noqa: S603  no shell
        if os.path.lexists(folder):
            first = said.decode("utf-8", "replace").partition("\n")[0]
            raise OSError(f"{folder} cannot be removed: {first[:500]}") from None
