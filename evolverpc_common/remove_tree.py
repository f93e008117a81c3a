"""Remove folders that programs may have changed in any way."""

import os
import shutil
import subprocess
from pathlib import Path

_COMMANDS = (("rm", "-rf"), ("chmod", "-R", "u+rwx"), ("rm", "-rf"))
"""They handle folders thousands of levels deep, which Python does not; the second opens closed folders."""


def remove_tree(folder: Path) -> None:
    """Remove a folder of any depth and any modes; do nothing if it does not exist. Blocks.

    Links are not followed.

    Raises:
        OSError: a part of it remains; the message names it, and the reason.
    """
    if folder.is_symlink():
        folder.unlink()
        return
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        stderr = b""
        for command in _COMMANDS:
            if not os.path.lexists(folder):
                return
            stderr = subprocess.run([*command, "--", str(folder)], capture_output=True, check=False).stderr  # noqa: S603  no shell
        if os.path.lexists(folder):
            first = stderr.decode("utf-8", "replace").partition("\n")[0]
            raise OSError(f"{folder} cannot be removed: {first[:500]}") from None
