"""Started by its path in front of a command: ties it to the server's life, then becomes it."""

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    if sys.platform.startswith("linux"):
        try:
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        except (ImportError, OSError, AttributeError) as error:
            # It will notice the end of its stdin all the same, unless it is busy then.
            sys.stderr.write("not tied to the server's life: %s\n" % error)
    try:
        os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  # what it is for
    except OSError as error:
        sys.exit("cannot start %s: %s" % (sys.argv[1], error.strerror))
