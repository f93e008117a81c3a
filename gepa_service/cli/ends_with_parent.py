"""`python ends_with_parent.py PARENT COMMAND...`: become the command, which gets SIGTERM when the parent has ended.

A parent that is killed cannot end its children itself. Standard library only: it is replaced by the command at once.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never returns."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)
    os.execv(command[0], command)  # noqa: S606  the purpose of this program


if __name__ == "__main__":
    main()
