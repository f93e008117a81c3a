"""What the kernel offers and Python 3.11 has no function for: namespaces, mounts, capabilities and a parent's death."""

import ctypes
import os
import signal

NEW_MOUNTS = 0x00020000
NEW_PIDS = 0x20000000

NO_SUID, NO_DEVICES, NO_EXEC, BIND, MOVE, RECURSIVE, PRIVATE = 0x2, 0x4, 0x8, 0x1000, 0x2000, 0x4000, 0x40000
"""Flags of `mount`."""

OWNER_OF_NAMESPACE = 0xB701
"""The ioctl that opens the user namespace which owns a namespace."""

_DEATH_SIGNAL, _DUMPABLE, _DROP_BOUND, _CHILD_REAPER, _NO_NEW_PRIVILEGES, _AMBIENT = 1, 4, 24, 36, 38, 47
_AMBIENT_CLEAR = 4
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219}
_JOIN_SESSION_KEYRING = 1
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def enter_namespace(descriptor: int) -> None:
    """Be in this namespace; a pid namespace is that of the children to come."""
    _checked("setns", descriptor, 0)


def leave_namespaces(which: int) -> None:
    """Be in new ones: `NEW_MOUNTS`, and `NEW_PIDS` for the next child."""
    _checked("unshare", which)


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Mount, with the arguments of the system call."""
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    _checked("mount", *arguments[:3], ctypes.c_ulong(flags), arguments[3])


def die_with_parent(parent: int | None = None) -> None:
    """Be killed when the parent ends. `parent`: its pid, where it may have ended already and can be seen from here."""
    _checked("prctl", _DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Be the parent of whatever descends from here and loses its own."""
    _checked("prctl", _CHILD_REAPER, 1, 0, 0, 0)


def leave_keyring() -> None:
    """Have a session keyring without any of the user's keys; where a machine's call for it is not known, nothing."""
    call = _KEYCTL.get(os.uname().machine)
    if call is not None:
        _libc.syscall(call, _JOIN_SESSION_KEYRING, None)  # refused in some containers, which then have none


def keep_to_itself() -> None:
    """Let no other process of the same user look into this one, until it executes something."""
    _checked("prctl", _DUMPABLE, 0, 0, 0, 0)


def give_up_privileges() -> None:
    """Have no capability in this user namespace, and no way to get one."""
    _checked("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _checked("prctl", _AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
    for capability in range(64):
        if _libc.prctl(_DROP_BOUND, capability, 0, 0, 0) != 0:
            break  # the kernel knows no more of them
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _checked("capset", header, (ctypes.c_uint32 * 6)())


def _checked(function: str, *arguments: object) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{function}: {os.strerror(error)}")
