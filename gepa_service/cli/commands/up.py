"""`gepa-service up`: the whole service on one machine."""

import contextlib
import http.client
import json
import os
import shlex
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from evolverpc_common.installation import installed_version
from evolverpc_common.network_addresses import is_loopback
from gepa_service.cli.data_folder import DataFolder, opened_folder, published_address
from gepa_service.cli.first_tenant import create_first_tenant
from gepa_service.cli.listening import bound_socket, url_of
from gepa_service.cli.operator_settings import OperatorError, OperatorSettings, read_operator_settings, variable_of
from gepa_service.cli.printing import refuse, warn
from gepa_service.cli.supervisor import Part, PartFailed, Supervisor
from gepa_service.records.open_records import open_records
from gepa_service.records.store import RecordError
from gepa_service.secrets.master_key import MasterKeyError, source_of
from gepa_service.secrets.vault import Vault
from sandbox_runtime.api.sandbox import RuntimeUnavailable
from sandbox_runtime.backends.bubblewrap.prerequisites import bubblewrap

ANSWER_S = 2.0
FAILED, STOPPED = 1, 130


class Sandbox(StrEnum):
    """What isolates the programs of tenants on this machine."""

    BUBBLEWRAP = "bubblewrap"
    PROCESS = "process"


def up(
    data: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the databases and the master key.")] = Path(
        "service-data"
    ),
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for a free one.")] = 8080,
    public_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="By which others reach the service, such as https://gepa.example.org."),
    ] = None,
    sandbox: Annotated[
        Sandbox, typer.Option(help="What isolates programs and optimizers; `process` isolates nothing.")
    ] = Sandbox.BUBBLEWRAP,
    jobs: Annotated[int, typer.Option(min=1, max=1000, help="Jobs that run at the same time.")] = 2,
    local_repositories: Annotated[
        bool | None,
        typer.Option(help="Whether folders of this machine may be connected.", show_default="on loopback"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON once the service answers.")] = False,
) -> None:
    """Start the whole service on this machine: the API, a worker, SQLite databases. Ctrl-C ends it.

    The first start prints the key of an owner, once. Other settings are variables: docs/guides/service.md.
    """
    try:
        _check_sandbox(sandbox)
        with opened_folder(data) as folder, bound_socket(host, port) as sock:
            folder.create_master_key()
            if not is_loopback(host) and public_url is None:
                raise OperatorError(f"{host} can be reached from other machines: give --public-url, by which they do")
            url = url_of(sock)
            local = is_loopback(host) if local_repositories is None else local_repositories
            environment = {
                **os.environ,
                **folder.variables(),
                variable_of("public_url"): public_url or url,
                variable_of("api_url"): url,
                variable_of("sandbox"): sandbox.value,
                variable_of("allow_local"): str(local).lower(),
            }
            _check_database(read_operator_settings(environment), environment)
            print(f"Starting the service in {data}", file=sys.stderr, flush=True)
            with published_address(folder, url):
                received = _run(folder, sock, url, environment, jobs, as_json)
    except OperatorError as error:
        refuse(str(error))
    except PartFailed as error:
        refuse(f"{error}; the reason is in the lines above", FAILED)
    if not as_json:
        print(f"The service has ended. Its jobs go on with: {shlex.join(['gepa-service', 'up', '--data', str(data)])}")
    raise typer.Exit(STOPPED if received == signal.SIGINT else 0)


def _check_sandbox(sandbox: Sandbox) -> None:
    if sandbox is Sandbox.PROCESS:
        warn("--sandbox process isolates nothing: programs and optimizers can read what you can")
        return
    try:
        bubblewrap(None)
    except RuntimeUnavailable as error:
        raise OperatorError(f"{error}\nOr, for programs that you trust: --sandbox process (isolates nothing)") from None


def _check_database(settings: OperatorSettings, environment: Mapping[str, str]) -> None:
    """Report a wrong master key or an unusable database here, once, not by each process. Raises `OperatorError`."""
    try:
        with contextlib.closing(open_records(settings.records)) as records:
            Vault(records, source_of(environment).read()).verify()
    except (MasterKeyError, RecordError) as error:
        raise OperatorError(str(error)) from None


def _run(
    folder: DataFolder, sock: socket.socket, url: str, environment: dict[str, str], jobs: int, as_json: bool
) -> int:
    """Run the API and a worker until a signal; return its number."""
    command = [sys.executable, "-P", "-m", "gepa_service.cli"]
    parts = [
        Part("API", [*command, "api", "--fd", str(sock.fileno())], environment, [sock.fileno()]),
        Part("worker", [*command, "worker", "--jobs", str(jobs)], environment),
    ]

    def announce() -> None:
        with contextlib.closing(open_records(str(folder.records))) as records:
            key = create_first_tenant(records)
        if as_json:
            print(json.dumps({"url": url, "data": str(folder.path), "key": key, "pid": os.getpid()}), flush=True)
        else:
            print("\n".join(_lines(folder, url, environment, key)), flush=True)

    return Supervisor(parts, warn).run(lambda: _is_ready(url), announce)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=ANSWER_S):  # noqa: S310  of this machine
            return True
    except (OSError, http.client.HTTPException):
        return False


def _lines(folder: DataFolder, url: str, environment: dict[str, str], key: str | None) -> Iterator[str]:
    yield f"EvolveRPC service {installed_version()}, one worker, sandboxes: {environment[variable_of('sandbox')]}"
    yield f"  API   {url}"
    yield f"  data  {folder.path} (private: it holds the master key)"
    yield ""
    if key is None:
        yield "The first start printed a key. Another one, in another terminal:"
        yield f"  {shlex.join(['gepa-service', 'keys', 'create', '--data', str(folder.path)])}"
    else:
        yield "The key of an owner. It is shown now and never again; in another terminal:"
        yield ""
        yield f"export GEPA_SERVICE_KEY={key}"
        yield ""
        yield "Next, there:"
        yield f'  curl -H "Authorization: Bearer $GEPA_SERVICE_KEY" {url}/usage'
    yield ""
    yield "Ctrl-C ends the service."
