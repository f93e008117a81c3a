"""`evolverpc service up`: the whole service on one machine."""

import json
import logging
import os
import shlex
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from evolverpc_common.installation import installed_version
from evolverpc_common.network_addresses import is_loopback
from evolverpc_common.processes import signals_handled
from gepa_client.errors import JournalError
from gepa_client.views.console import refuse
from gepa_service.api.request_log import configure_logs
from gepa_service.auth.keys import make_key
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
from gepa_service.cli.dispatcher_and_engine import dispatch, place_of
from gepa_service.cli.service_configuration import (
    KEY_FILE,
    RECORDS,
    RUNS,
    WORK,
    ConfigurationError,
    listening_socket,
    opened_folder,
    opened_service,
    parse_issuers,
    url_of,
)
from gepa_service.engines.engine import EngineRefused
from gepa_service.jobs.job_environment import Place
from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.records import RecordStore, new_id
from gepa_service.secrets.master_key import MasterKeyError, create_key_file
from gepa_service.service import Service
from sandbox_runtime.api.sandbox import RuntimeUnavailable
from sandbox_runtime.backends.bubblewrap.prerequisites import bubblewrap

FAILED, STOPPED = 1, 130
NAME = "default"
"""Of the first tenant."""


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
            create_key_file(folder / KEY_FILE)
            if not is_loopback(host) and public_url is None:
                raise ConfigurationError(
                    f"{host} can be reached from other machines: give --public-url, by which they do"
                )
            url = url_of(sock)
            api = url if engine == LOCAL else public_url or url
            place = place_of(api=api, folder=folder / WORK, sandbox=sandbox_of(sandbox, engine, api))
            print(f"Starting the service in {data}", file=sys.stderr, flush=True)
            with opened_service(
                str(folder / RECORDS),
                str(folder / RUNS),
                public_url or url,
                allow_local=is_loopback(host) if local_repositories is None else local_repositories,
                allow_networks=allow_network or (),
                oidc=oidc or (),
                master_key=folder / KEY_FILE,
            ) as service:
                received = _run(service, folder, sock, place, jobs, engine, keep_days, as_json)
    except (ConfigurationError, EngineRefused, JournalError, MasterKeyError) as error:
        refuse(str(error))
    if not as_json:
        again = shlex.join(["evolverpc", "service", *sys.argv[sys.argv.index("up") :]])
        print(f"The service has ended. Its jobs continue with:\n  {again}")
    raise typer.Exit(STOPPED if received == signal.SIGINT else 0)


def _check_sandbox(sandbox: str) -> None:
    if sandbox == "process":
        unsafe = "warning: --sandbox process isolates nothing: programs and optimizers can read what you can"
        print(unsafe, file=sys.stderr, flush=True)
        return
    try:
        bubblewrap(None)
    except RuntimeUnavailable as error:
        raise ConfigurationError(
            f"{error}\nOr, for programs that you trust: --sandbox process (isolates nothing)"
        ) from None


def _run(
    service: Service,
    folder: Path,
    sock: socket.socket,
    place: Place,
    jobs: int,
    engine: str,
    keep_days: float | None,
    as_json: bool,
) -> int:
    """Serve the API and dispatch beside it until a signal, which is returned. Work is handed back before the API ends.

    A second signal ends this process at once.
    """
    from gepa_service.cli.api_server import served  # a second of imports, which `--help` does not need

    url, stop, received = url_of(sock), threading.Event(), list[int]()

    def signalled(number: int, _frame: object) -> None:
        if received:
            os._exit(128 + number)  # processes of work end with this one
        received.append(number)
        stop.set()

    configure_logs("service", logging.WARNING)
    with (
        signals_handled(signalled, signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
        served(service, sock, stop.set),
    ):
        dispatch(service, place, jobs, stop, engine, keep_days, lambda: _announce(service, folder, url, place, as_json))
    if not received:
        refuse("the API has ended; the reason is in the lines above", FAILED)
    return received[0]


def _announce(service: Service, folder: Path, url: str, place: Place, as_json: bool) -> None:
    key = create_first_tenant(service.records)
    if as_json:
        print(json.dumps({"url": url, "data": str(folder), "key": key, "pid": os.getpid()}), flush=True)
    else:
        print("\n".join(_lines(folder, url, place.sandbox, key)), flush=True)


def create_first_tenant(records: RecordStore) -> str | None:
    """Create a tenant with a key of an owner, unless there is a tenant; return the key, which is stored nowhere."""
    if records.page(Tenant, TENANTS, limit=1):
        return None
    tenant = Tenant(tenant=TENANTS, id=new_id("tenant"), name=NAME)
    key, record = make_key(tenant.id, "first key", "owner")
    records.insert(record)  # before its tenant: a start that is cut off here is made up for by the next one
    records.insert(tenant)
    return key


def _lines(folder: Path, url: str, sandbox: str, key: str | None) -> Iterator[str]:
    yield f"EvolveRPC service {installed_version()}, sandboxes: {sandbox}"
    yield f"  page  {url}/ (sign in with a key)"
    yield f"  API   {url}"
    yield f"  data  {folder} (private: it holds the master key)"
    yield ""
    if key is None:
        yield "The first start printed a key. Another one, in another terminal:"
        again = ["keys", "create", NAME, "--role", "owner", "--database", str(folder / RECORDS)]
        yield f"  {shlex.join(['evolverpc', 'service', *again])}"
    else:
        yield f"The key of an owner of the tenant `{NAME}`. It is shown now and never again; in another terminal:"
        yield ""
        yield f"export GEPA_SERVICE_URL={url}"
        yield f"export GEPA_SERVICE_KEY={key}"
        yield ""
        yield "Next, there:"
        yield '  curl -H "Authorization: Bearer $GEPA_SERVICE_KEY" $GEPA_SERVICE_URL/usage'
    yield ""
    yield "Ctrl-C ends the service."
