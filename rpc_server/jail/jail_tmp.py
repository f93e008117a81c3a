"""Start bubblewrap with a file system for `/tmp` and `/dev/shm` that is limited in inodes, not only in bytes.

Started by its path: `python -I -S jail_tmp.py INODES -- BWRAP ...`. In its own namespaces it mounts a tmpfs limited in
inodes, and lets bubblewrap bind folders of it instead of a tmpfs. If only bubblewrap may create namespaces, the command
runs unchanged.
"""

import ctypes
import os
import sys
from pathlib import Path

_NEW_NAMESPACES = 0x10000000 | 0x00020000  # CLONE_NEWUSER, CLONE_NEWNS
_RECURSIVE_PRIVATE = 0x4000 | 0x40000  # MS_REC, MS_PRIVATE
_NO_SUID_NO_DEVICES = 0x2 | 0x4  # MS_NOSUID, MS_NODEV
_STAGE = "/dev/shm"  # noqa: S108  # covered here and in the jail
_PLACES = {"/tmp": "tmp", "/dev/shm": "shm"}  # noqa: S108  # the jail's own


def main() -> None:
    """Execute the command."""
    inodes, separator, *command = sys.argv[1:]
    if separator != "--":
        sys.exit("usage: jail_tmp.py INODES -- BWRAP ...")
    if not any(word.startswith(f"{_STAGE}/") for word in command):
        sizes = {command[at + 3]: command[at + 1] for at in _tmpfs_in(command)}
        child = os.fork()  # a failure half way through must leave this process as it was
        if child == 0:
            os._exit(0 if _mounted(sizes, inodes) else 1)
        if os.waitpid(child, 0)[1] == 0 and _mounted(sizes, inodes):
            for at in reversed(_tmpfs_in(command)):
                command[at : at + 4] = ["--bind", f"{_STAGE}/{_PLACES[command[at + 3]]}", command[at + 3]]
    os.execv(command[0], command)  # noqa: S606  # executing the command is its purpose


def _tmpfs_in(command: list[str]) -> list[int]:
    """Return the positions of `--size BYTES --tmpfs PLACE` in the command for these places."""
    found = (at for at, word in enumerate(command[:-3]) if word == "--size" and command[at + 2] == "--tmpfs")
    return [at for at in found if command[at + 3] in _PLACES]


def _mounted(sizes: dict[str, str], inodes: str) -> bool:
    """Mount the file system in new namespaces of this process; report whether that is possible."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    options = f"size={max(map(int, sizes.values()))},nr_inodes={inodes},mode=0755".encode()
    try:
        if libc.unshare(_NEW_NAMESPACES) != 0:
            return False
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
        if libc.mount(b"none", b"/", None, _RECURSIVE_PRIVATE, None) != 0:
            return False
        if libc.mount(b"tmpfs", _STAGE.encode(), b"tmpfs", _NO_SUID_NO_DEVICES, options) != 0:
            return False
        for name in _PLACES.values():
            folder = Path(_STAGE, name)
            folder.mkdir()
            folder.chmod(0o1777)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
