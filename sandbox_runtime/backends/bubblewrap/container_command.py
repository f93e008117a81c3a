"""What a container looks like from inside, and the command that starts it."""

import importlib.util
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox_runtime.api.sandbox import RuntimeUnavailable
from sandbox_runtime.api.spec import MODELS_PORT, PreparedEnvironment
from sandbox_runtime.backends.bubblewrap import first_process
from sandbox_runtime.backends.bubblewrap.system_call_filter import compiled_filter
from sandbox_runtime.backends.image_setup import WORKSPACE
from sandbox_runtime.environments.build_folder import TRUST, certificate_bundle

HOME = f"{WORKSPACE}/home"
TMP = f"{WORKSPACE}/tmp"  # noqa: S108  the sandbox's own
USER = "gepa"
USER_ID = 1000


@dataclass(frozen=True)
class VisiblePaths:
    """What a container shows of the host, at the same path. `readable`: files and folders. `writable`: a folder."""

    readable: tuple[str, ...]
    writable: Path | None = None


SERVER = (sys.executable, "-I", "-m", "rpc_server")
"""The command that starts the server in our own environment, before its flags."""


def package_mounts(*packages: str) -> tuple[str, ...]:
    """Return the folders of this interpreter with what is installed for it, and of these packages of ours.

    They are mounted one by one, not the whole checkout.

    Raises:
        RuntimeUnavailable: one of them is not installed.
    """
    return tuple(dict.fromkeys(str(path) for path in _needed(packages)))


def _needed(packages: Sequence[str]) -> Iterator[Path]:
    yield from (Path(sys.prefix), Path(sys.base_prefix))
    yield from _passed_through(Path(sys.executable))
    for name in packages:
        found = importlib.util.find_spec(name)
        if found is None or not found.submodule_search_locations:
            raise RuntimeUnavailable(
                f"the package `{name}` is not installed: run pip install '.[server,sandbox]' in the folder of evolverpc"
            )
        yield from (Path(folder) for folder in found.submodule_search_locations)


def _passed_through(executable: Path) -> Iterator[Path]:
    """Yield the installations that an interpreter's links lead through: those of uv have two names."""
    while executable.is_symlink():
        executable = Path(os.path.normpath(executable.parent / executable.readlink()))
        prefix = executable.parents[1]
        if any(prefix.glob("lib/python3*")):
            yield prefix


SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
MODELS_URL = f"http://127.0.0.1:{MODELS_PORT}"


def own_variables(prepared: PreparedEnvironment) -> dict[str, str]:
    """Return the variables that name folders and the user, and make programs trust the certificates of this machine."""
    bundle = certificate_bundle()
    return {
        "USER": USER,
        "LOGNAME": USER,
        "SHELL": "/bin/sh",
        **prepared.variables(WORKSPACE, ":".join(SYSTEM_PATH)),
        **({} if bundle is None else dict.fromkeys(TRUST, bundle)),
    }


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
    kinds = ["--ro-bind"] * len(readable) + ["--bind"] * (len(paths) - len(readable))
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
        *(part for kind, (path, place) in zip(kinds, staged, strict=True) for part in (kind, place, path)),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORKSPACE),
        *("--", sys.executable, "-I", "-S", _FIRST_PROCESS, str(wire), "--hostname", name),
    ]


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
