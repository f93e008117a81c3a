"""Becomes a command: goes to its folder, takes its bounds and its listening socket, and runs it.

    python -I -S launch.py FOLDER MEMORY FILE LISTENING COMMAND [ARGUMENT ...]

MEMORY and FILE are in bytes, or -1 for no bound; LISTENING is the descriptor that the command finds as 3, or -1. Done
here rather than between fork and exec of the runtime's process, which has threads. Standard library only.
"""

import os
import resource
import signal
import sys

_CANNOT_RUN, _NOT_FOUND = 126, 127


def main() -> None:
    """Never returns."""
    folder, memory, file, listening, *command = sys.argv[1:]
    try:
        os.chdir(folder)
        # Not RLIMIT_AS: that counts what is reserved and never used, of which Node and Go reserve gigabytes.
        _bound(resource.RLIMIT_DATA, int(memory))
        _bound(resource.RLIMIT_FSIZE, int(file))
        _bound(resource.RLIMIT_CORE, 0)
        if int(listening) >= 0:
            os.dup2(int(listening), 3)
            if int(listening) != 3:
                os.close(int(listening))
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and whoever it becomes would inherit that
            signal.signal(ignored, signal.SIG_DFL)
        os.execvpe(command[0], command, os.environ)  # noqa: S606  what it was given to run
    except OSError as error:
        # As a shell says it.
        status = _NOT_FOUND if isinstance(error, FileNotFoundError | NotADirectoryError) else _CANNOT_RUN
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(status)


def _bound(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    if most >= 0 and (hard == resource.RLIM_INFINITY or most < hard):
        resource.setrlimit(which, (most, most))


if __name__ == "__main__":
    main()
