"""Started by its path in front of a command: ties it to the server's life, then becomes it."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    try:
        os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  # what it is for
    except OSError as error:
        sys.exit("cannot start %s: %s" % (sys.argv[1], error.strerror))
