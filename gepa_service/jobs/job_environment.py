"""Where attempts work: their folders, and the environments of their processes, without what the dispatcher's holds."""

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from sandbox_runtime.environments.build_folder import build_variables

Forward = Callable[[int], AbstractContextManager[str]]
"""Makes a port of this machine reachable from elsewhere while its block runs, and gives the address."""

PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "VIRTUAL_ENV")
"""Variables of the dispatcher that describe this machine, besides those that name sources of packages."""

_REFUSED_SECRETS = re.compile(
    r"(LD|DYLD|GIT|PYTHON|GEPA|XDG|UV|PIP|NPM|NODE|PYENV|NVM|OPENSSL|SSL|SSH|BASH|PERL|RUBY|JAVA|DBUS|LC|MALLOC|GLIBC|EVOLVERPC|MODAL|RAY)_?.*"
    r"|.*_PROXY|PATH|HOME|TMPDIR|TMP|TEMP|SHELL|ENV|IFS|LANG|TZ|USER|LOGNAME|PWD|EDITOR|PAGER|TERM|HOSTALIASES"
    r"|LOCALDOMAIN|RES_OPTIONS|NLSPATH|LOCPATH|GCONV_PATH|GETCONF_DIR|RESOLV_.*|VIRTUAL_ENV|REQUESTS_CA_BUNDLE"
    r"|CURL_CA_BUNDLE|NETRC|.*_(BASE_URL|API_BASE)",
    re.IGNORECASE,
)
"""Names of variables that decide what programs of this machine do, or where they connect to.

No secret of a tenant may be one of them.
"""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

MODAL = "MODAL_"
"""The prefix of the variables that hold a process's credentials at Modal."""


@dataclass(frozen=True)
class Place:
    """What all attempts of a machine share.

    `api`: the address of the API, as this machine reaches it. `folder`: for the folders of works. `cache`: of fetched
    repositories and built environments, by tenant. `sandbox`: the backend. `forward`: with the backend `modal`, makes a
    port of this machine reachable from there, and gives its address.
    """

    api: str
    folder: Path
    cache: Path
    sandbox: str = "bubblewrap"
    forward: Forward | None = None


def folder_of(place: Place, work_id: str, attempt: int) -> Path:
    """Return the folder of an attempt: processes of the one before may end later."""
    return place.folder / f"{work_id}-{attempt}"


def basic_environment(folder: Path, *, at_modal: bool = False) -> dict[str, str]:
    """Return the variables of a process that works in this folder. `at_modal`: it starts sandboxes at Modal."""
    kept = build_variables(os.environ) | {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    if at_modal:
        kept |= {name: value for name, value in os.environ.items() if name.startswith(MODAL)}
    return {**kept, "HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}


def cache_folder(tenant: str, cache: Path) -> Path:
    """Return where the folder of a tenant's own cache is, or would be."""
    return cache / hashlib.sha256(tenant.encode()).hexdigest()[:32]


def cache_of(tenant: str, cache: Path) -> Path:
    """Return the folder of a tenant's own cache, made if needed.

    None is shared: fetched repositories may be private, and what one tenant's program built may harm another's.
    """
    folder = cache_folder(tenant, cache)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def may_be_secret(name: str) -> bool:
    """Return whether a variable of the processes of jobs may have this name, which a tenant chose."""
    return _VARIABLE.fullmatch(name) is not None and _REFUSED_SECRETS.fullmatch(name) is None
