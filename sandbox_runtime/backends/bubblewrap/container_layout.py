"""What a container looks like from inside: its mounts, generated files, workspace and environment variables."""

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_runtime.api.egress import MODELS_PORT, TUNNEL_PORT
from sandbox_runtime.api.sandbox import RuntimeUnavailable
from sandbox_runtime.api.spec import Command, PreparedEnvironment, SandboxSpec
from sandbox_runtime.backends.bubblewrap.supervisor_client import ContainerEntry

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
"""The command that keeps a container open: it ends when its input is closed."""


@dataclass(frozen=True)
class VisiblePaths:
    """What a container shows of the host, at the same path. `readable`: files and folders. `writable`: a folder."""

    readable: tuple[str, ...]
    writable: Path | None = None

    @property
    def mounts(self) -> list[str]:
        """What is mounted besides the system, outermost first."""
        return [*_outermost(self.readable), *([] if self.writable is None else [str(self.writable)])]


def start_order(
    visible: VisiblePaths, entry: ContainerEntry, *, bubblewrap: str, name: str, workspace_mb: int
) -> dict[str, Any]:
    """Return the order to start a container, see `forks.become_bubblewrap`. `name`: its host name, to find it by."""
    kinds = {str(visible.writable): "--bind"}
    mounts = [part for path in visible.mounts for part in (kinds.get(path, "--ro-bind"), ["shown", path], path)]
    argv = _argv(bubblewrap, name, mounts, workspace_mb)
    return {"user": entry.user, "groups": list(entry.groups), "argv": argv}


def mounts_order(visible: VisiblePaths, entry: ContainerEntry) -> dict[str, Any]:
    """Return the order to finish its mounts, see `forks.finish_mounts`."""
    return {
        "user": entry.user,
        "folders": [HOME, TMP, _SHARED_MEMORY],
        "covers": [list(cover) for cover in _COVERS],
        "mounts": visible.mounts,
        "aside": f"{WORKSPACE}/.aside",
    }


def _outermost(paths: Iterable[str]) -> list[str]:
    """Drop paths below another one or below `/usr`; both paths of a link are kept."""
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
    """Yield the folders that are links into `/usr` if it was merged, and folders of their own otherwise."""
    for name in _ROOT:
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.is_dir():
            yield from ("--ro-bind", name, name)


SERVER = (sys.executable, "-I", "-m", "rpc_server")
"""The command that starts the server in our own environment, before its flags."""

PRELOAD = "rpc_server.cli.serve"
"""The module that a process which forks servers imports first."""

MAIN = ("rpc_server.cli", "run_isolated")
"""The function that such a fork calls."""

_PACKAGES = ("protocol", "rpc_server", "sandbox_runtime", "evolverpc_common")


def server_mounts() -> tuple[str, ...]:
    """Return the folders that the server needs. Our packages are mounted one by one, not the whole checkout.

    Raises:
        RuntimeUnavailable: `rpc_server`, or a module that it needs, is not installed.
    """
    return package_mounts(*_PACKAGES)


def package_mounts(*packages: str) -> tuple[str, ...]:
    """Return the folders of this interpreter with what is installed for it, and of these packages.

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
TUNNEL_URL = f"http://127.0.0.1:{TUNNEL_PORT}"

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def variables(spec: SandboxSpec, command: Command) -> dict[str, str]:
    """Return the variables of one command of a sandbox."""
    session = {} if spec.gateway_session is None else spec.gateway_session.env(MODELS_URL, TUNNEL_URL)
    return {**basics(spec.prepared), **certificates(), **session, **spec.env, **spec.secrets, **command.env}


def basics(prepared: PreparedEnvironment) -> dict[str, str]:
    """Return the variables that name folders and the user."""
    return {
        "PATH": ":".join((f"{WORKSPACE}/bin", *prepared.path, *SYSTEM_PATH)),
        "HOME": HOME,
        "TMPDIR": TMP,
        "USER": USER,
        "LOGNAME": USER,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        **prepared.env,
    }


def certificates() -> Mapping[str, str]:
    """Return the variables that make programs trust the certificates of this machine."""
    bundle = certificate_bundle()
    if bundle is None:
        return {}
    return dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"), bundle)


def certificate_bundle() -> str | None:
    """Return the bundle of certificates that this process's environment names, or the system's."""
    named = os.environ.get("SSL_CERT_FILE")
    return next((path for path in (named, *_BUNDLES) if path is not None and Path(path).is_file()), None)
