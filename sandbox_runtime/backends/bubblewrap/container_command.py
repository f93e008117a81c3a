"""The command that starts a container, and what the container looks like from inside."""

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from sandbox_runtime.backends.bubblewrap import first_process
from sandbox_runtime.backends.bubblewrap.container_layout import (
    HOME,
    TMP,
    USER,
    USER_ID,
    WORKSPACE,
    VisiblePaths,
    package_mounts,
)
from sandbox_runtime.backends.bubblewrap.seccomp import compiled_filter

_FIRST_PROCESS = first_process.__file__
_SHARED_MEMORY = f"{WORKSPACE}/.shm"
_COVERS = ((WORKSPACE, WORKSPACE), (TMP, "/tmp"), (TMP, "/var/tmp"), (_SHARED_MEMORY, "/dev/shm"))  # noqa: S108  the sandbox's own
_ROOT = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d"),
    *("localtime", "mime.types", "nsswitch.conf", "protocols", "services"),
    *("pki/ca-trust/extracted", "pki/tls/certs", "ssl/certs", "ssl/openssl.cnf"),  # never the keys beside them
)
_MADE_UP = {
    "/etc/passwd": f"root:x:0:0:root:/:/bin/false\n{USER}:x:{USER_ID}:{USER_ID}::{HOME}:/bin/sh\n",
    "/etc/group": f"root:x:0:\n{USER}:x:{USER_ID}:\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/hostname": "sandbox\n",
}

_STAGE = "/tmp"  # noqa: S108  covered by a mount of the first bubblewrap's own
_DISK = f"{_STAGE}/disk"
_STAGED_WORKSPACE = f"{_DISK}{WORKSPACE}"
_JOIN = """
read score < /proc/self/oom_score_adj
[ "$score" -ge 500 ] || echo 500 > /proc/self/oom_score_adj
for file in {groups}; do echo 0 > "$file" || exit; done
exec "$@"
"""
"""A script: end this before others if the machine runs out of memory, and join control groups."""

_MAKE_FOLDERS = 'umask 022; mkdir -p {folders} && exec "$@"'
_COMMAND_OF_ITS_OWN = (
    *("--dev-bind", "/", "/", "--proc", "/proc", "--unshare-user", "--unshare-pid", "--die-with-parent"),
    *("--cap-drop", "ALL", "--info-fd", str(first_process.INFO), "--", "/bin/sh", "-c", 'exec "$@"', "sh"),
)


def argv_alone(bubblewrap: str) -> Sequence[str]:
    """Return the command, before its arguments, that runs another in a pid namespace of its own in the container."""
    return (bubblewrap, *_COMMAND_OF_ITS_OWN)


def container_argv(
    visible: VisiblePaths,
    *,
    bubblewrap: str,
    name: str,
    workspace_mb: int,
    user: int | None,
    groups: Iterable[str],
    file: Callable[[bytes], int],
    wire: int,
) -> list[str]:
    """Return the command that starts a container, in which `first_process` waits for orders.

    A first bubblewrap mounts the workspace, and what is visible, where every user may go: /root, for example, admits no
    other user. In it, as the container's user and in its control groups, a second one makes the container; two, because
    bubblewrap cannot mount what it has itself mounted a second time, and `/tmp` must count as the workspace.

    `name`: the container's host name, to find it by. `user`: of the machine, None for this one. `groups`: the files by
    which to join control groups. `file`: returns the descriptor of a file with this content. `wire`: the descriptor of
    the socket of `first_process`.
    """
    readable = _outermost((*visible.readable, *package_mounts(), _FIRST_PROCESS, bubblewrap))
    paths = [*readable, *([] if visible.writable is None else [str(visible.writable)])]
    staged = [(path, f"{_STAGE}/{number}") for number, path in enumerate(paths)]
    folders = [path.replace(WORKSPACE, _STAGED_WORKSPACE) for path in (HOME, TMP, _SHARED_MEMORY)]
    as_user = () if user is None else ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
    return [
        *(bubblewrap, "--die-with-parent", "--dev-bind", "/", "/", "--tmpfs", _STAGE),
        *(part for path, place in staged for part in ("--bind", path, place)),
        *("--perms", "0777", "--size", str(workspace_mb * 2**20), "--tmpfs", _DISK, "--"),
        *("/bin/sh", "-c", _JOIN.format(groups=shlex.join(groups)), "sh", *as_user),
        *("/bin/sh", "-c", _MAKE_FOLDERS.format(folders=shlex.join(folders)), "sh"),
        *(bubblewrap, "--unshare-all", "--unshare-user", "--as-pid-1", "--die-with-parent", "--new-session"),
        *("--clearenv", "--cap-drop", "ALL", "--uid", str(USER_ID), "--gid", str(USER_ID), "--hostname", name),
        *(() if (filter_ := compiled_filter()) is None else ("--seccomp", str(file(filter_)))),
        *("--ro-bind", "/usr", "/usr"),
        *_links(),
        *(part for path in _ETC for part in ("--ro-bind-try", f"/etc/{path}", f"/etc/{path}")),
        *(
            part
            for path, made in _MADE_UP.items()
            for part in ("--perms", "0644", "--file", str(file(made.encode())), path)
        ),
        *("--proc", "/proc", "--dev", "/dev", "--dir", "/run"),
        *(part for path, at in _COVERS for part in ("--bind", path.replace(WORKSPACE, _STAGED_WORKSPACE), at)),
        *(part for path, place in staged for part in (_kind(path, visible), place, path)),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORKSPACE),
        *("--", sys.executable, "-I", "-S", _FIRST_PROCESS, str(wire), "--hostname", name),
    ]


def _kind(path: str, visible: VisiblePaths) -> str:
    return "--bind" if visible.writable is not None and path == str(visible.writable) else "--ro-bind"


def _outermost(paths: Iterable[str]) -> list[str]:
    """Drop paths below another one or below `/usr`; both paths of a link are kept."""
    kept: list[str] = []
    for path in sorted({os.path.normpath(path) for path in paths}, key=len):
        if not any(path == outer or path.startswith(f"{outer}/") for outer in ("/usr", *kept)):
            kept.append(path)
    return kept


def _links() -> Iterator[str]:
    """Yield the folders that are links into `/usr` if it was merged, and folders of their own otherwise."""
    for name in _ROOT:
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.is_dir():
            yield from ("--ro-bind", name, name)
