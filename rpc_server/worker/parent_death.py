"""The parent-death signal, so that a server killed with SIGKILL leaves no busy process behind.

Started by its path in front of a command, it ties the command's life to the server's and executes it.
"""

from __future__ import annotations

import os
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def die_with_parent(expected_parent: int | None = None) -> None:
    """Request SIGKILL at the parent's death on Linux; elsewhere the end of stdin has that role.

    `expected_parent`: its pid; if it is gone already, this process exits at once.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    except (ImportError, OSError, AttributeError):
        return  # an interpreter without ctypes, or a C library without prctl
    if expected_parent is not None and os.getppid() != expected_parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Have descendants whose parent ends become children of this process, on Linux."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    die_with_parent()
    try:
        os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  # executing the command is its purpose
    except OSError as error:
        sys.exit("cannot start %s: %s" % (sys.argv[1], error.strerror))
