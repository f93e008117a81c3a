"""More than a program may."""

import contextlib
import ctypes
import glob
import os
import resource
import subprocess
import tempfile
from pathlib import Path

from registry import attempt


@attempt
def new_user_namespace(example):
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "id"], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


@attempt
def become_root(example):
    for change in (os.setuid, os.seteuid, os.setgid):
        with contextlib.suppress(OSError):
            change(0)
            if os.getuid() == 0:
                return "root"
    done = subprocess.run(["su", "-c", "id"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


@attempt
def capabilities(example):
    status = Path("/proc/self/status").read_text()
    held = {line.split()[0]: line.split()[1] for line in status.splitlines() if line.startswith(("CapPrm", "CapEff"))}
    return held if any(int(value, 16) for value in held.values()) else None


@attempt
def mount_something(example):
    folder = tempfile.mkdtemp()
    if ctypes.CDLL(None, use_errno=True).mount(b"none", folder.encode(), b"tmpfs", 0, None) == 0:
        return folder
    return None


@attempt
def remount_writable(example):
    libc = ctypes.CDLL(None, use_errno=True)
    for path in (b"/", b"/usr"):
        if libc.mount(None, path, None, 32 | 4096, None) == 0:
            return path
    return None


@attempt
def change_the_kernel(example):
    for path in (
        "/proc/sys/kernel/hostname",
        "/proc/sysrq-trigger",
        "/sys/fs/cgroup/cgroup.procs",
        "/proc/sys/vm/drop_caches",
    ):
        with contextlib.suppress(OSError), open(path, "r+"):
            return path
    return None


@attempt
def leave_the_cgroup(example):
    for path in glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True):
        with contextlib.suppress(OSError):
            Path(path).write_text(str(os.getpid()))
            return path
    return None


@attempt
def raise_limits(example):
    for limit in (resource.RLIMIT_NPROC, resource.RLIMIT_CORE):
        _, hard = resource.getrlimit(limit)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            if hard != resource.RLIM_INFINITY:
                return limit
    return None
