"""`evolverpc service up`: the whole service on one machine."""

import contextlib
import http.client
import json
import os
import shlex
import signal
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from evolverpc_common.installation import installed_version
from evolverpc_common.network_addresses import is_loopback
from gepa_client.views.console import refuse
from gepa_service.cli.arguments import (
    LOCAL,
    AllowNetwork,
    EngineName,
    Host,
    Isolation,
    JobsAtOnce,
    KeepDays,
    Oidc,
    Port,
    sandbox_of,
)
from gepa_service.cli.data_folder import DataFolder, opened_folder, published_address
from gepa_service.cli.first_tenant import NAME, create_first_tenant
from gepa_service.cli.listening import listening_socket, url_of
from gepa_service.cli.service_parts import ConfigurationError, parse_issuers
from gepa_service.cli.service_processes import PartFailed, ServiceProcess, Supervisor
from gepa_service.records.open_records import open_records
from gepa_service.records.store import RecordError
from gepa_service.secrets.master_key import COMMAND_VARIABLE, FILE_VARIABLE, VARIABLE, MasterKeyError, master_keys
from gepa_service.secrets.vault import Vault
from sandbox_runtime.api.sandbox import RuntimeUnavailable
from sandbox_runtime.backends.bubblewrap.prerequisites import bubblewrap

ANSWER_S = 2.0
FAILED, STOPPED = 1, 130


KEY_VARIABLES = (VARIABLE, COMMAND_VARIABLE)
"""Other ways to name a master key: this service has its own."""


def up(
    data: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the databases and the master key.")] = Path(
        "service-data"
    ),
    host: Host = "127.0.0.1",
    port: Port = 8600,
    public_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="By which others reach the service, such as https://gepa.example.org."),
    ] = None,
    sandbox: Isolation = None,
    jobs: JobsAtOnce = 2,
    engine: EngineName = LOCAL,
    local_repositories: Annotated[
        bool | None,
        typer.Option(help="Whether folders of this machine may be connected.", show_default="on loopback"),
    ] = None,
    allow_network: AllowNetwork = None,
    oidc: Oidc = None,
    keep_days: KeepDays = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON once the service answers.")] = False,
) -> None:
    """Start the whole service on this machine: the API, a dispatcher, SQLite databases. Ctrl-C ends it.

    The first start prints the key of an owner, once.
    """
    try:
        if engine == LOCAL:  # else the nodes of the cluster report it
            _check_sandbox(sandbox or "bubblewrap")
        parse_issuers(oidc or ())
        with opened_folder(data) as folder, listening_socket(host, port) as sock:
            folder.create_master_key()
            if not is_loopback(host) and public_url is None:
                raise ConfigurationError(
                    f"{host} can be reached from other machines: give --public-url, by which they do"
                )
            local = is_loopback(host) if local_repositories is None else local_repositories
            environment = {name: value for name, value in os.environ.items() if name not in KEY_VARIABLES}
            environment[FILE_VARIABLE] = str(folder.master_key)
            _check_database(folder, environment)
            print(f"Starting the service in {data}", file=sys.stderr, flush=True)
            url = url_of(sock)
            shared = ["--database", str(folder.records), "--journals", str(folder.journals)]
            shared += ["--allow-local"] if local else []
            shared += [word for network in allow_network or () for word in ("--allow-network", network)]
            command = [sys.executable, "-P", "-m", "gepa_service.cli"]
            served = [*command, "api", *shared, "--fd", str(sock.fileno()), "--public-url", public_url or url]
            served += [word for issuer in oidc or () for word in ("--oidc", issuer)]
            api = url if engine == LOCAL else public_url or url
            kind = sandbox_of(sandbox, engine, api)
            worked = [*command, "dispatcher", *shared, "--api", api, "--folder", str(folder.work), "--engine", engine]
            worked += [] if sandbox is None else ["--sandbox", sandbox]
            worked += [] if keep_days is None else ["--keep-days", f"{keep_days:g}"]
            parts = [
                ServiceProcess("API", served, environment, [sock.fileno()]),
                ServiceProcess("dispatcher", [*worked, "--jobs", str(jobs)], environment),
            ]
            with published_address(folder, url):
                received = Supervisor(parts, _warn).run(
                    lambda: _is_ready(url), lambda: _announce(folder, url, kind, as_json)
                )
    except ConfigurationError as error:
        refuse(str(error))
    except PartFailed as error:
        refuse(f"{error}; the reason is in the lines above", FAILED)
    if not as_json:
        again = shlex.join(["evolverpc", "service", "up", "--data", str(data)])
        print(f"The service has ended. Its jobs continue with:\n  {again}")
    raise typer.Exit(STOPPED if received == signal.SIGINT else 0)


def _check_sandbox(sandbox: str) -> None:
    if sandbox == "process":
        _warn("--sandbox process isolates nothing: programs and optimizers can read what you can")
        return
    try:
        bubblewrap(None)
    except RuntimeUnavailable as error:
        raise ConfigurationError(
            f"{error}\nOr, for programs that you trust: --sandbox process (isolates nothing)"
        ) from None


def _check_database(folder: DataFolder, environment: Mapping[str, str]) -> None:
    """Report a wrong master key or an unusable database here, once. Raises `ConfigurationError`."""
    try:
        with contextlib.closing(open_records(str(folder.records))) as records:
            Vault(records, master_keys(environment)).verify()
    except (MasterKeyError, RecordError) as error:
        raise ConfigurationError(str(error)) from None


def _announce(folder: DataFolder, url: str, sandbox: str, as_json: bool) -> None:
    with contextlib.closing(open_records(str(folder.records))) as records:
        key = create_first_tenant(records)
    if as_json:
        print(json.dumps({"url": url, "data": str(folder.path), "key": key, "pid": os.getpid()}), flush=True)
    else:
        print("\n".join(_lines(folder, url, sandbox, key)), flush=True)


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=ANSWER_S):  # noqa: S310  of this machine
            return True
    except (OSError, http.client.HTTPException):
        return False


def _lines(folder: DataFolder, url: str, sandbox: str, key: str | None) -> Iterator[str]:
    yield f"EvolveRPC service {installed_version()}, sandboxes: {sandbox}"
    yield f"  page  {url}/ (sign in with a key)"
    yield f"  API   {url}"
    yield f"  data  {folder.path} (private: it holds the master key)"
    yield ""
    if key is None:
        yield "The first start printed a key. Another one, in another terminal:"
        yield f"  {shlex.join(['evolverpc', 'service', 'keys', 'create', NAME, '--database', str(folder.records)])}"
    else:
        yield "The key of an owner, for the page too. It is shown now and never again; in another terminal:"
        yield ""
        yield f"export GEPA_SERVICE_URL={url}"
        yield f"export GEPA_SERVICE_KEY={key}"
        yield ""
        yield "Next, there:"
        yield '  curl -H "Authorization: Bearer $GEPA_SERVICE_KEY" $GEPA_SERVICE_URL/usage'
    yield ""
    yield "Ctrl-C ends the service."
