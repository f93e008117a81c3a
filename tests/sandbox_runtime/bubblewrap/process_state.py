"""Print as JSON what a process starts with; a warm fork and a new interpreter are compared by it."""

import json
import locale
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

_STATUS = ("SigBlk", "SigIgn", "SigCgt", "Umask", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")


def main() -> None:
    """Print the state of this process."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    signals = {str(number): str(signal.getsignal(number)) for number in signal.valid_signals()}
    state = {
        "python_signals": signals,
        "kernel": {name: status[name] for name in _STATUS if name in status},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "descriptors": {name: os.get_inheritable(int(name)) for name in ("0", "1", "2")},
        "open": sorted(path.name for path in Path("/proc/self/fd").iterdir() if path.exists()),
        "limits": {
            name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")
        },
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
        "niceness": os.nice(0),
        "affinity": sorted(os.sched_getaffinity(0)),
        "leads_session": os.getsid(0) == os.getpid(),
        "oom_score": Path("/proc/self/oom_score_adj").read_text(),
        "time_zone": time.tzname,
        "locale": locale.setlocale(locale.LC_CTYPE),
        "encodings": [sys.getfilesystemencoding(), sys.stdin.encoding, sys.stdout.encoding, sys.stdout.errors],
        "flags": str(sys.flags),
        "path": [path for path in sys.path if path],  # `-c` puts the working folder in front
        "recursion": sys.getrecursionlimit(),
        "random": random.random(),
    }
    print(json.dumps(state))
