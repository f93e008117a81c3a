"""Arguments of several commands, and the databases that they open."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import typer

from evolverpc_common.display_text import without_password
from evolverpc_common.network_addresses import is_loopback
from gepa_client.journal.sqlite import APPLICATION_ID as OF_RUNS
from gepa_client.journal.store import looks_like_a_url
from gepa_client.settings.run_config import ENGINE
from gepa_client.settings.run_settings import SandboxKind
from gepa_client.views.console import PAUSED, refuse
from gepa_service.model.tenant import TENANTS, DatabaseName, Tenant
from gepa_service.records import APPLICATION_ID, RecordError, RecordStore, RecordsUnavailable, open_records, stored
from gepa_service.secrets.envelope import SecretDamaged
from gepa_service.secrets.master_key import MasterKeyError

DEFAULT_DATABASE = "service-data/records.db"
DEFAULT_JOURNALS = "service-data/journals.db"
LOCAL = "local"
"""The engine of this machine."""

MODAL = "modal"

Database = Annotated[
    str,
    typer.Option(
        "--database",
        envvar="GEPA_SERVICE_DATABASE",
        metavar="FILE|URL",
        help="The service's records: a SQLite file or a mongodb:// URL.",
    ),
]
Journals = Annotated[
    str,
    typer.Option(envvar="GEPA_SERVICE_JOURNALS", metavar="FILE|URL", help="The store of runs, as --store elsewhere."),
]
AllowLocal = Annotated[bool, typer.Option("--allow-local", help="Take repositories in folders of this machine.")]
AllowNetwork = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CIDR", help="A network that repositories and webhooks may be in besides public ones; repeatable."
    ),
]
GitHubApp = Annotated[
    Path | None,
    typer.Option(envvar="GEPA_SERVICE_GITHUB_APP", metavar="FILE", help="A TOML file that describes the GitHub App."),
]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")]
Isolation = Annotated[
    Literal["bubblewrap", "process"] | None,
    typer.Option(
        help="What isolates programs and optimizers; `process` isolates nothing.",
        show_default="bubblewrap; at Modal its own sandboxes",
    ),
]
JobsAtOnce = Annotated[
    int, typer.Option(min=1, max=1000, metavar="N", help="Jobs at the same time, and as many batches and steps.")
]


def _engine(name: str) -> str:
    if name not in (LOCAL, MODAL) and not ENGINE.fullmatch(name):
        raise typer.BadParameter(f"give {LOCAL}, {MODAL}, auto, or ray://HOST:PORT")
    return name


EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        callback=_engine,
        metavar="local|modal|auto|ray://HOST:PORT",
        help="Where work runs: on this machine, at Modal (always in its own sandboxes), or on a Ray"
        " cluster (`auto`: that of this machine).",
    ),
]


def sandbox_of(sandbox: SandboxKind | None, engine: str, api: str) -> SandboxKind:
    """Return what isolates work of this engine. Refuses what attempts at Modal cannot use: exits with 2."""
    if engine != MODAL:
        return sandbox or "bubblewrap"
    if sandbox is not None:
        refuse(f"--sandbox {sandbox}: --engine {MODAL} always uses Modal's own sandboxes; leave --sandbox out")
    if is_loopback(urlsplit(api).hostname):
        refuse(f"{api}: attempts at Modal cannot reach an API on loopback; give the https:// address that they can")
    return "modal"


KeepDays = Annotated[
    float | None,
    typer.Option(
        envvar="GEPA_SERVICE_KEEP_DAYS",
        min=1.0,
        metavar="N",
        help="Days that ended work, the audit log and sent webhooks are kept (default: until they are deleted).",
    ),
]
Oidc = Annotated[
    list[str] | None,
    typer.Option(
        "--oidc",
        metavar="'ISSUER AUDIENCE [VARIABLE]'",
        help="An OIDC issuer where people sign in, and whose tokens are accepted; repeatable. VARIABLE names an"
        " environment variable with the client's secret.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
TenantName = Annotated[str, typer.Argument(metavar="TENANT", help="Its id, or its name if no other has it.")]


@contextmanager
def open_cli_records(database: str, *, journals: str | None = None, create: bool = False) -> Iterator[RecordStore]:
    """Open the records for the block; print what prevents it and exit with 2, or 3 if trying later can help.

    `journals`: the store of runs, which is refused if it or the database is used with another one. `create`: make a
    SQLite file that is missing, and state so; else it is refused.
    """
    if not looks_like_a_url(database) and not Path(database).exists():
        if not create:
            refuse(f"there is no database {database}: name another one, or evolverpc service tenants create makes it")
        print(f"creating the database {database}", file=sys.stderr, flush=True)
    with _opened(database) as records:
        if journals is not None:
            _check_pair(records, without_password(database), journals, create)
        yield records


def _check_pair(records: RecordStore, database: str, journals: str, create: bool) -> None:
    """Have each note the name of the other, unless it has noted another one."""
    if not looks_like_a_url(journals) and not Path(journals).exists():
        if not create or records.get(DatabaseName, TENANTS, "other") is not None:
            refuse(f"there is no store of runs {journals}: name the one of {database}, or put it back")
        print(f"creating the store of runs {journals}", file=sys.stderr, flush=True)
    with _opened(journals, OF_RUNS) as runs:
        here, there = (stored(each, DatabaseName(id="own"), lambda found: found).name for each in (records, runs))
        for each, other in ((records, there), (runs, here)):
            if stored(each, DatabaseName(id="other", name=other), lambda found: found).name != other:
                both = f"{database} and the store of runs {without_password(journals)}"
                refuse(f"the database {both} are not used together: correct --database or --journals")


@contextmanager
def _opened(database: str, application_id: int = APPLICATION_ID) -> Iterator[RecordStore]:
    try:
        with closing(open_records(database, application_id)) as records:
            yield records
    except RecordsUnavailable as error:
        refuse(f"{error}; the database is {without_password(database)}", PAUSED)
    except (RecordError, MasterKeyError, SecretDamaged) as error:
        refuse(str(error))


def find_tenant(records: RecordStore, named: str) -> Tenant:
    """Return the tenant of an id or a name. Exits with 2 if there is none, or several."""
    by_id = records.get(Tenant, TENANTS, named)
    if by_id is not None:
        return by_id
    found = [tenant for tenant in records.every(Tenant, TENANTS) if tenant.name == named]
    if len(found) != 1:
        why = f"{len(found)} tenants have this name: give an id" if found else "no tenant has this id or name"
        refuse(f"{named}: {why}; evolverpc service tenants list shows all")
    return found[0]
