"""The fork that becomes bubblewrap, as the sandbox's own user, to whom it shows what the sandbox may read."""

import os
import stat
from dataclasses import dataclass
from typing import Any, NoReturn

from sandbox_runtime.backends.bubblewrap.doorman import forked, kernel

_STAGE = "/tmp"  # noqa: S108  covered by a mount of this process's own before anything is put there


@dataclass(frozen=True)
class Ends:
    """What a new sandbox is held by: `stdin` ends it when closed, `up` is told when it stands, `info` its first pid."""

    stdin: int
    up: int
    info: int
    log: int


def become_bubblewrap(order: int, ends: Ends, doorman: int) -> NoReturn:
    """Do it.

    The order: `argv`, where `["info"]` stands for the descriptor that bubblewrap tells its first pid on, `["text", T]`
    for one that T can be read from, and `["shown", P]` for a path by which the sandbox's user reaches P; `user`, None
    to stay who this is; `groups`, the files by which to join its control groups.
    """
    try:
        told = forked.read_order(order)
        forked.prefer_to_end()
        forked.join([os.open(path, os.O_WRONLY) for path in told["groups"]])
        if told["user"] is not None:
            _stage(told["argv"])
        argv = [_resolved(part, ends) for part in told["argv"]]
        forked.become_user(told["user"])
        kernel.die_with_parent(doorman)
        for descriptor, number in ((ends.stdin, 0), (ends.up, 1), (ends.log, 2)):
            os.dup2(descriptor, number)
        os.set_inheritable(ends.info, True)
        forked.signals_as_new()
        os.execve(argv[0], argv, {})  # noqa: S606  no shell
    except BaseException as error:  # noqa: BLE001  told, and the end of this process
        forked.fail(error, ends.log)


def _stage(argv: list[Any]) -> None:
    """Mount what is to be shown where anybody may go, in mounts of this process's own: /root, say, lets nobody in."""
    shown = [part for part in argv if isinstance(part, list) and part[0] == "shown"]
    kernel.leave_namespaces(kernel.NEW_MOUNTS)
    kernel.mount("none", "/", None, kernel.RECURSIVE | kernel.PRIVATE)
    sources = [os.open(part[1], os.O_PATH) for part in shown]
    kernel.mount("tmpfs", _STAGE, "tmpfs", kernel.NO_SUID | kernel.NO_DEVICES, "mode=0755,size=1m")
    for number, (part, source) in enumerate(zip(shown, sources, strict=True)):
        place = f"{_STAGE}/{number}"
        if stat.S_ISDIR(os.fstat(source).st_mode):  # its path may be hidden by now
            os.mkdir(place, 0o755)  # noqa: PTH102  cheaper, and this is after a fork
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
        kernel.mount(f"/proc/self/fd/{source}", place, None, kernel.BIND | kernel.RECURSIVE)
        os.close(source)
        part[1] = place


def _resolved(part: Any, ends: Ends) -> str:
    if isinstance(part, str):
        return part
    if part[0] == "info":
        return str(ends.info)
    if part[0] == "text":
        file = os.memfd_create("text", 0)
        os.write(file, part[1].encode())
        os.lseek(file, 0, os.SEEK_SET)
        return str(file)
    return str(part[1])
