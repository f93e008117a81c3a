"""Dying with the parent, so that a server killed with SIGKILL leaves no busy process behind.

Started by its path in front of a command, it ties that to the server's life and becomes it.
"""

from __future__ import annotations

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(expected_parent: int | None = None) -> None:
    """Ask Linux for SIGKILL at the parent's death; elsewhere the end of stdin has to do.

    `expected_parent`: its pid; when it is gone already, this process ends at once.
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


if __name__ == "__main__":
    die_with_parent()
    try:
        os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  # what it is for
    except OSError as error:
        sys.exit("cannot start %s: %s" % (sys.argv[1], error.strerror))
