"""What a sandbox looks like from inside: folders of the host to be read, made-up files, and one place to write."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_runtime.backends.bubblewrap.order import Way

WORKSPACE = "/workspace"
HOME = f"{WORKSPACE}/home"
TMP = f"{WORKSPACE}/tmp"  # noqa: S108  the sandbox's own
USER = "gepa"
USER_ID = 1000

_SHARED_MEMORY = f"{WORKSPACE}/.shm"
_COVERS = ((TMP, "/tmp"), (TMP, "/var/tmp"), (_SHARED_MEMORY, "/dev/shm"))  # noqa: S108  the sandbox's own
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
_HOLD = "echo up; exec cat"
"""What runs in a sandbox that is up: it ends when its input is closed."""


@dataclass(frozen=True)
class Shape:
    """What one sandbox shows of the host, at the same path. `readable`: files and folders. `writable`: a folder."""

    readable: tuple[str, ...]
    writable: Path | None = None

    @property
    def mounts(self) -> list[str]:
        """What is mounted besides the system, outermost first."""
        return [*_outermost(self.readable), *([] if self.writable is None else [str(self.writable)])]


def start_order(shape: Shape, way: Way, *, bubblewrap: str, name: str, workspace_mb: int) -> dict[str, Any]:
    """The order to start a sandbox: see `starting.become_bubblewrap`. `name`: its host name, by which it is found."""
    kinds = {str(shape.writable): "--bind"}
    mounts = [part for path in shape.mounts for part in (kinds.get(path, "--ro-bind"), ["shown", path], path)]
    argv = _argv(bubblewrap, name, mounts, workspace_mb)
    return {"user": way.user, "groups": list(way.groups), "argv": argv}


def furnish_order(shape: Shape, way: Way) -> dict[str, Any]:
    """The order to finish it: see `entering.furnish`."""
    return {
        "user": way.user,
        "folders": [HOME, TMP, _SHARED_MEMORY],
        "covers": [list(cover) for cover in _COVERS],
        "mounts": shape.mounts,
        "aside": f"{WORKSPACE}/.aside",
    }


def _outermost(paths: Iterable[str]) -> list[str]:
    """Without those that are below another or below `/usr`; links have two places, so both are kept."""
    kept: list[str] = []
    for path in sorted({os.path.normpath(path) for path in paths}, key=len):
        if not any(path == outer or path.startswith(f"{outer}/") for outer in ("/usr", *kept)):
            kept.append(path)
    return kept


def _argv(bubblewrap: str, name: str, mounts: list[Any], writable_mb: int) -> list[Any]:
    return [
        bubblewrap,
        *("--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"),
        *("--uid", str(USER_ID), "--gid", str(USER_ID), "--hostname", name, "--info-fd", ["info"]),
        *("--ro-bind", "/usr", "/usr"),
        *_links(),
        *(part for path in _ETC for part in ("--ro-bind-try", f"/etc/{path}", f"/etc/{path}")),
        *(part for path, text in _MADE_UP.items() for part in ("--perms", "0644", "--file", ["text", text], path)),
        *("--proc", "/proc", "--dev", "/dev", "--dir", "/tmp", "--dir", "/var/tmp", "--dir", "/run"),  # noqa: S108
        *mounts,
        *("--size", str(writable_mb * 2**20), "--tmpfs", WORKSPACE),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORKSPACE),
        *("--", "/bin/sh", "-c", _HOLD),
    ]


def _links() -> Iterator[str]:
    """The folders that are links into `/usr` where it was merged, and folders of their own elsewhere."""
    for name in _ROOT:
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.is_dir():
            yield from ("--ro-bind", name, name)
