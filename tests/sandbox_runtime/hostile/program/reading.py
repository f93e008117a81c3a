"""Reading what is the host's."""

import contextlib
import ctypes
import glob
import os
import struct
import tempfile
from pathlib import Path

from registry import Kept, attempt, walk


def read(*paths):
    for path in paths:
        with contextlib.suppress(OSError):
            return "%s: %r" % (path, Path(path).read_bytes()[:80])
    return None


@attempt
def read_canary(example):
    return read(example["canary_file"])


@attempt
def list_host_temporary(example):
    return [path for path in glob.glob("/tmp/*") + glob.glob("/var/tmp/*") if example["canary_name"] in path] or None


@attempt
def walk_for_canary(example):
    for folder, folders, files in walk():
        if example["canary_name"] in files or example["canary_name"] in folders:
            return folder
    return None


@attempt
def read_through_proc_root(example):
    for root in glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if Path(root + example["canary_file"]).exists():
                return root
    return None


@attempt
def follow_a_link_out(example):
    link = Path(tempfile.mkdtemp()) / "link"
    link.symlink_to(example["canary_file"])
    return link.read_text()


@attempt
def open_by_handle(example):
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(struct.pack("IiQ", 8, 1, 2), 32)
    descriptor = libc.open_by_handle_at(os.open("/usr", os.O_RDONLY), buffer, os.O_RDONLY)
    if descriptor < 0:
        raise Kept(os.strerror(ctypes.get_errno()))
    return "opened inode 2 of the host's disk"


@attempt
def read_kernel_log(example):
    if ctypes.CDLL(None, use_errno=True).klogctl(3, ctypes.create_string_buffer(4096), 4096) > 0:
        return "the kernel's log"
    return None


@attempt
def read_devices(example):
    return read("/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/nvme0n1")
