"""Which variables of this process commands that build may have: where packages come from, and how to get there."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_USERINFO = re.compile(r"://[^/@\s]+@")
_SEPARATED_BY_COMMAS = {"UV_FIND_LINKS"}
"""pip separates by whitespace; so does uv, except here."""

_UV_FOR_PIP = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_CERT": "SSL_CERT_FILE",
}
"""uv does not read pip's variables; whoever set them means them here too."""

_PASSED = {
    *("LANG", "LC_ALL", "TZ"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_OFFLINE"),
    *("UV_INSECURE_HOST", "UV_HTTP_TIMEOUT", "UV_EXCLUDE_NEWER", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS"),
    *("NPM_CONFIG_REGISTRY", "NPM_CONFIG_CAFILE", "NPM_CONFIG_OFFLINE"),
}
_PASSED_PREFIX = "UV_INDEX"
"""`UV_INDEX` and the credentials of a named index, `UV_INDEX_NAME_USERNAME`."""


def build_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Those of `environ` that say where packages come from; no others, as what builds is somebody's code."""
    passed = {
        name: value for name, value in environ.items() if name.upper() in _PASSED or name.startswith(_PASSED_PREFIX)
    }
    for pip, uv in _UV_FOR_PIP.items():
        if pip in environ:
            entries = environ[pip].split()
            passed.setdefault(uv, ("," if uv in _SEPARATED_BY_COMMAS else " ").join(entries))
    return passed


def holds_password(variables: Mapping[str, str]) -> bool:
    """Whether a build script that sees these variables could read a password: in a URL, or by itself."""
    return any(name.upper().endswith("_PASSWORD") or _USERINFO.search(value) for name, value in variables.items())


def readable_by(variables: Mapping[str, str]) -> Iterator[str]:
    """The files and folders of this machine that they name."""
    for value in variables.values():
        for word in value.replace(",", " ").split():
            path = Path(word.removeprefix("file://"))
            if path.is_absolute() and path.exists():
                yield str(path)
