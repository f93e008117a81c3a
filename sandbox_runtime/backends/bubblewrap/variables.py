"""The environment of a sandbox's commands: exactly what the spec and its parts say, nothing of this process's."""

import os
from collections.abc import Mapping
from pathlib import Path

from sandbox_runtime.api.gateway_session import MODELS_PORT, TUNNEL_PORT
from sandbox_runtime.api.recipe import Prepared
from sandbox_runtime.api.spec import Command, SandboxSpec
from sandbox_runtime.backends.bubblewrap.layout import HOME, TMP, USER, WORKSPACE

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
    """Those of one command of a sandbox."""
    passage = {} if spec.way_out is None else spec.way_out.env(MODELS_URL, TUNNEL_URL)
    return {**basics(spec.prepared), **certificates(), **passage, **spec.env, **spec.secrets, **command.env}


def basics(prepared: Prepared) -> dict[str, str]:
    """Where things are."""
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
    """Whom to trust in TLS: what this machine does, told in all the ways that programs ask."""
    bundle = certificate_bundle()
    if bundle is None:
        return {}
    return dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"), bundle)


def certificate_bundle() -> str | None:
    """The file that this process's environment names, or the system's."""
    named = os.environ.get("SSL_CERT_FILE")
    return next((path for path in (named, *_BUNDLES) if path is not None and Path(path).is_file()), None)
