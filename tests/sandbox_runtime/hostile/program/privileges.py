"""More than a program may."""

import contextlib
import glob
import os
from pathlib import Path

from registry import attempt


@attempt
def leave_the_cgroup(example):
    for path in glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True):
        with contextlib.suppress(OSError):
            Path(path).write_text(str(os.getpid()))
            return path
    return None
