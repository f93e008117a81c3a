"""Make the parts of an API from what an operator configures, as options, variables of a container, or a data folder."""

import os
import socket
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evolverpc_common.files import lock_if_free
from evolverpc_common.network_addresses import CannotListen, bound_socket, parse_networks, url_host
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.auth.oidc import OidcIssuer, OidcTokens
from gepa_service.auth.recognize import Recognizer
from gepa_service.auth.sessions import Sessions
from gepa_service.cli.arguments import open_cli_records
from gepa_service.jobs.tenant_secrets import revealed
from gepa_service.repositories.github_app import GitHub, GitHubSettings
from gepa_service.repositories.repository_access import RepositoryPolicy
from gepa_service.secrets.master_key import FILE_VARIABLE, master_keys
from gepa_service.secrets.master_key import VARIABLE as MASTER_KEY
from gepa_service.secrets.vault import Vault
from gepa_service.service import Service

BACKLOG = 2048

DATABASE, JOURNALS = "GEPA_SERVICE_DATABASE", "GEPA_SERVICE_JOURNALS"
REQUIRED = (DATABASE, JOURNALS, MASTER_KEY)
PUBLIC_URL = "GEPA_SERVICE_PUBLIC_URL"
NETWORKS = "GEPA_SERVICE_ALLOW_NETWORKS"
OIDC = "GEPA_SERVICE_OIDC"
GITHUB_APP, GITHUB_KEY = "GEPA_SERVICE_GITHUB_APP_TOML", "GEPA_SERVICE_GITHUB_APP_KEY"
SETTINGS = (DATABASE, JOURNALS, PUBLIC_URL, NETWORKS, OIDC, GITHUB_APP, GITHUB_KEY)
MONGODB = ("mongodb://", "mongodb+srv://")
PRIVATE, OTHERS = 0o700, 0o077
RECORDS, RUNS, KEY_FILE, WORK = "records.db", "journals.db", "master.key", "work"
"""In a data folder: the database of records, the store of runs, the master key, and the folder of jobs."""


class ConfigurationError(Exception):
    """The configuration cannot be used; the text names the option or the file, and holds no secret."""


def read_github_app(file: Path, state_key: bytes) -> GitHub:
    """Return the GitHub App that a TOML file describes. Raises `ConfigurationError`.

    Its `private_key_file` is sought from the folder of the file.
    """
    try:
        if stat.S_IMODE(file.stat().st_mode) & 0o077:
            raise ConfigurationError(f"{file} holds secrets, and others may read it: chmod 600 {file}")
        described = tomllib.loads(file.read_text(encoding="utf-8"))
        key = (file.parent / str(described.pop("private_key_file"))).read_text(encoding="utf-8")
    except KeyError as missing:
        raise ConfigurationError(f"{file}: missing or wrong: {missing.args[0]}") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} cannot be used: {getattr(error, 'strerror', None) or error}") from None
    return github_app(described, key, state_key, str(file))


def github_app(described: Mapping[str, Any], key: str, state_key: bytes, where: str) -> GitHub:
    """Return the GitHub App of a description and its private key. Raises `ConfigurationError`, which names `where`."""
    try:
        return GitHub(GitHubSettings.model_validate({**described, "key": key, "state_key": state_key}))
    except ValidationError as error:  # its own text would show the secrets
        fields = ", ".join(".".join(map(str, fault["loc"])) for fault in error.errors())
        raise ConfigurationError(f"{where}: missing or wrong: {fields}") from None
    except ValueError as error:
        raise ConfigurationError(f"{where} cannot be used: {error}") from None


def parse_issuers(texts: Sequence[str]) -> OidcTokens:
    """Return the check of tokens of OIDC issuers, each given as `--oidc` has it. Raises `ConfigurationError`."""
    found = []
    for text in texts:
        issuer, audience, variable, *more = (*text.split(), "", "", "")
        try:
            if any(more):
                raise ValueError("it has more than three words")
            if variable and not os.environ.get(variable):
                raise ValueError("its third word names no variable that is set")
            found.append(OidcIssuer(issuer, audience, os.environ[variable] if variable else None))
        except ValueError as error:
            raise ConfigurationError(
                f"--oidc '{issuer} {audience}': {error}; give 'ISSUER AUDIENCE [VARIABLE]'"
            ) from None
    return OidcTokens(found)


@contextmanager
def opened_service(
    database: str,
    journals: str,
    public_url: str,
    *,
    allow_local: bool = False,
    allow_networks: Sequence[str] = (),
    github: Callable[[bytes], GitHub] | None = None,
    oidc: Sequence[str] = (),
    master_key: Path | None = None,
) -> Iterator[Service]:
    """Open the parts for the block. Exits, with a message, if the database or the master key cannot be used.

    `github`: makes the GitHub App, given the key of its states. `master_key`: its file; by default the variables of
    this process name it.

    Raises:
        ConfigurationError: another option cannot be used.
    """
    try:
        networks = parse_networks(allow_networks)
    except ValueError as error:
        raise ConfigurationError(f"--allow-network: {error}") from None
    issuers = parse_issuers(oidc)
    with open_cli_records(database, journals=journals, create=True) as records:
        masters = master_keys(os.environ if master_key is None else {FILE_VARIABLE: str(master_key)})
        vault = Vault(records, masters)
        vault.verify()
        present = masters[0]
        tokens = JobTokens(records, [each.value for each in masters])
        service = Service(
            records=records,
            journals=journals,
            recognize=Recognizer(records, tokens, issuers),
            public_url=public_url,
            repositories=RepositoryPolicy(allow_local=allow_local, allow_networks=networks),
            github=None if github is None else github(present.derived("github state")),
            webhook_key=present.derived("webhooks"),
            vault=vault,
            sessions=Sessions(present.derived("sessions")),
            oidc=issuers,
            job_tokens=tokens,
            revealed=partial(revealed, vault),
        )
        with closing(service):
            yield service


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `ConfigurationError`."""
    try:
        sock = bound_socket(host, port, backlog=BACKLOG, in_use=": end the program that uses it")
    except CannotListen as error:
        raise ConfigurationError(str(error)) from None
    # Connections inherit it. The server does not set it on a socket that it gets, and the body of each response
    # would then wait 40 ms for the acknowledgement of its head.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def url_of(sock: socket.socket) -> str:
    """Return the URL of a listening socket, on this machine if it listens on all addresses."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  compared, not bound
    return f"http://{url_host(host)}:{port}"


@contextmanager
def opened_in_container(variables: Mapping[str, str], secret: str, public_url: str | None) -> Iterator[Service]:
    """Open the parts of a service whose containers share no file, for the block; as `opened_service`.

    `variables`: hold all settings. `secret`: what gives them to containers, for messages. `public_url`: the address of
    the API that the platform gives, if the variables name none.

    Raises:
        ConfigurationError: a setting is missing, or names a file; nothing names the API's address, by which jobs reach
            their journals.
    """
    settings = {name: variables.get(name, "").strip() for name in SETTINGS}
    missing = [name for name in REQUIRED if not variables.get(name, "").strip()]
    if missing:
        raise ConfigurationError(f"{' and '.join(missing)} must be set: add it to {secret}")
    for name in (DATABASE, JOURNALS):
        if not settings[name].startswith(MONGODB):
            raise ConfigurationError(
                f"{name} names no MongoDB database, and containers share no SQLite file: set it in {secret} to a"
                " mongodb:// or mongodb+srv:// URL that is reached from there"
            )
    if bool(settings[GITHUB_APP]) != bool(settings[GITHUB_KEY]):
        raise ConfigurationError(f"{GITHUB_APP} and {GITHUB_KEY} belong together: set both in {secret}, or neither")
    address = settings[PUBLIC_URL] or public_url
    if address is None:
        raise ConfigurationError(f"the address of the API is not known: set {PUBLIC_URL} to it")
    with opened_service(
        settings[DATABASE],
        settings[JOURNALS],
        address,
        allow_networks=settings[NETWORKS].split(),
        github=partial(_github_app, settings) if settings[GITHUB_APP] else None,
        oidc=[line.strip() for line in settings[OIDC].splitlines() if line.strip()],
    ) as service:
        yield service


def _github_app(settings: Mapping[str, str], state_key: bytes) -> GitHub:
    try:
        described = tomllib.loads(settings[GITHUB_APP])
    except ValueError as error:
        raise ConfigurationError(f"{GITHUB_APP} is no TOML: {error}") from None
    return github_app(described, settings[GITHUB_KEY], state_key, GITHUB_APP)


@contextmanager
def opened_folder(path: Path) -> Iterator[Path]:
    """Hold the data folder of a service on one machine for the block, for one `up` at a time; yield its absolute path.

    It is created if it is absent, readable by its owner alone. Its files: `RECORDS`, `RUNS`, `KEY_FILE`, and `WORK`.

    Raises:
        ConfigurationError: it cannot be used, others may read it, or another process holds it.
    """
    folder = path.absolute()
    try:
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        ignored = folder / ".gitignore"
        if not ignored.exists():
            ignored.write_text("*\n")
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & OTHERS:
            raise ConfigurationError(f"{path} may be read by others (mode {mode:03o}): chmod 700 {path}")
        if (folder / RECORDS).exists() and not (folder / KEY_FILE).exists():
            raise ConfigurationError(
                f"{folder / KEY_FILE} is missing, and secrets in {path} were encrypted by it: put it back, "
                "or give another --data"
            )
        with lock_if_free(folder / "lock") as is_free:
            if not is_free:
                raise ConfigurationError(f"a service runs in {path} already: end it, or give another --data")
            yield folder
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be used: {error.strerror or error}") from None
