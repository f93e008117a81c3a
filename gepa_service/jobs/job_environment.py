"""The environments of a job's processes: what each needs, and nothing that the dispatcher's own holds."""

import hashlib
import os
import re
from pathlib import Path

from sandbox_runtime.environments.build_folder import build_variables

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
