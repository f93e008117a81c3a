"""The filter of system calls in a container: which ones fail."""

import errno
import platform
import socket
import struct
from dataclasses import dataclass

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000

_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
_NUMBERS_OF_X32 = 0x40000000


@dataclass(frozen=True)
class _SystemCalls:
    """Numbers of system calls. `keys`: add_key, request_key, keyctl; `rings`: the three of io_uring."""

    architecture: int
    socket: int
    keys: tuple[int, int, int]
    userfaultfd: int
    rings: tuple[int, int, int] = (425, 426, 427)


_MACHINES = {
    "x86_64": _SystemCalls(0xC000003E, 41, (248, 249, 250), 323),
    "aarch64": _SystemCalls(0xC00000B7, 198, (217, 218, 219), 282),
}


def compiled_filter() -> bytes | None:
    """Return the seccomp filter, as bubblewrap reads it; None on machines whose calls are unknown.

    It is for what no namespace isolates, because the kernel has one of it for all processes. Keyrings are shared by all
    descendants of one process, and sockets of some families (AF_VSOCK, which connects to the host of a virtual machine)
    ignore network namespaces. io_uring makes sockets that no filter sees, so it is removed too. See seccomp(2) and
    linux/filter.h.
    """
    machine = _MACHINES.get(platform.machine())
    return None if machine is None else _program(machine)


def _program(machine: _SystemCalls) -> bytes:
    """Return the filter: no calls of another architecture, none of the forbidden ones, sockets of four families."""
    absent = _line(_RETURN, _ERROR | errno.ENOSYS)
    forbidden = (*machine.keys, *machine.rings, machine.userfaultfd)
    lines = [_line(_LOAD, _ARCHITECTURE), _line(_EQUAL, machine.architecture, 1, 0), absent, _line(_LOAD, _NUMBER)]
    lines += [_line(_AT_LEAST, _NUMBERS_OF_X32, 0, 1), absent]
    for number in forbidden:
        lines += [_line(_EQUAL, number, 0, 1), absent]
    lines += [_line(_EQUAL, machine.socket, 1, 0), _line(_RETURN, _ALLOW), _line(_LOAD, _FIRST_ARGUMENT)]
    for family in _FAMILIES:
        lines += [_line(_EQUAL, family, 0, 1), _line(_RETURN, _ALLOW)]
    return b"".join([*lines, _line(_RETURN, _ERROR | errno.EAFNOSUPPORT)])


def _line(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """Return one instruction; `then` and `otherwise`: how many to skip if a comparison is true, and if not."""
    return struct.pack("@HBBI", code, then, otherwise, value)
