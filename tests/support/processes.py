"""Processes of this machine, by what `/proc` states of them."""

import contextlib
from pathlib import Path


def is_running(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes_with(text: str, *names: str) -> dict[int, str]:
    """The living processes whose environment, or these files of `/proc`, hold the text, with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            held = b" ".join((folder / name).read_bytes() for name in names or ("environ",)).replace(b"\0", b" ")
            if text.encode() in held and is_running(int(folder.name)):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = command.decode(errors="replace")
    return found


def command_of(pid: int) -> bytes:
    """The command line of a process, empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
