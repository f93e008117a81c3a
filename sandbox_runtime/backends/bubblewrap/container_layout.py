"""What a container shows of this machine, and the environment variables of its commands."""

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox_runtime.api.egress import MODELS_PORT
from sandbox_runtime.api.sandbox import RuntimeUnavailable
from sandbox_runtime.api.spec import PreparedEnvironment

WORKSPACE = "/workspace"
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

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def own_variables(prepared: PreparedEnvironment) -> dict[str, str]:
    """Return the variables that name folders and the user, and make programs trust the certificates of this machine."""
    bundle = certificate_bundle()
    trust = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
    return {
        "USER": USER,
        "LOGNAME": USER,
        "SHELL": "/bin/sh",
        **prepared.variables(WORKSPACE, ":".join(SYSTEM_PATH)),
        **({} if bundle is None else dict.fromkeys(trust, bundle)),
    }


def certificate_bundle() -> str | None:
    """Return the bundle of certificates that this process's environment names, or the system's."""
    named = os.environ.get("SSL_CERT_FILE")
    return next((path for path in (named, *_BUNDLES) if path is not None and Path(path).is_file()), None)
