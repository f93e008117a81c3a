"""What the commands over stored runs share: the store they open, the run they find, what they say if they cannot."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from evolverpc_common.display_text import plain_json
from evolverpc_common.printed_commands import command
from gepa_client.cli.exit_status import STOPPED, USAGE
from gepa_client.cli.views.console import fail
from gepa_client.errors import ClientError, JournalError, StoreUnavailable
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.store import Store
from gepa_client.journal.store_factory import default_store, find_run, looks_like_a_url, open_store
from gepa_client.transport.error_format import summary
from protocol.errors import RpcError

RunName = Annotated[str, typer.Argument(help="Its id, the beginning of it, its name, or `last`.")]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="FILE|URL", help="Where runs are kept (default GEPA_STORE, else runs/evolverpc.db)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]

SILENT_S = 60.0
"""Seconds without a sign of life after which a driver is taken for gone, as far as people are told: several leases."""

TYPE_THIS_FIRST = "gepa-client optimize http://127.0.0.1:8000 --max-metric-calls 500"


def refuse(message: str, status: int = USAGE) -> NoReturn:
    """Say what is wrong and end with 2, or with another status."""
    fail(message)
    raise typer.Exit(status)


@contextmanager
def opened(url: str | None, *, create: bool = False, unavailable: int = USAGE) -> Iterator[Store]:
    """The store of `--store`, closed in the end; what goes wrong with it is told, and ends the command with 2.

    `create`: make the file where there is none; reading never does. `unavailable`: the exit status where it may be
    there another time.
    """
    where = default_store(url)
    if not create and absent(where):
        refuse(f"no store at {where}: no run was started there; name another with --store FILE, or GEPA_STORE")
    try:
        store = open_store(where)
        try:
            yield store
        finally:
            store.close()
    except StoreUnavailable as error:
        refuse(str(error), unavailable)
    except JournalError as error:
        refuse(str(error))
    except (ClientError, RpcError) as error:
        refuse(summary(error))
    except KeyboardInterrupt:
        fail("stopped by hand")
        raise typer.Exit(STOPPED) from None


def absent(url: str | None) -> bool:
    """Whether the store is a file that is not there yet."""
    where = default_store(url)
    try:
        return not looks_like_a_url(where) and not Path(where).exists()
    except (OSError, ValueError) as error:  # a name that no file can have
        why = getattr(error, "strerror", None) or error
        refuse(f"the store {where} cannot be opened: {why}; name another with --store FILE")


@contextmanager
def opened_run(url: str | None, name: str, *, unavailable: int = USAGE) -> Iterator[tuple[Store, StoredRun]]:
    """The store and the run in it that `name` means; as `opened`."""
    with opened(url, unavailable=unavailable) as store:
        yield store, find_run(store, name)


def next_command(run: StoredRun, store: str | None, *, candidates: bool = True) -> str:
    """What one types next about a run in its present state."""
    if run.status == "running" and not silent(run):
        return command("cancel", run.id, store=store)
    if run.status in ("pending", "running", "paused", "failed"):
        return command("resume", run.id, store=store)
    report = Path(run.output) / "report.md" if run.output else None
    if report is not None and report.is_file():
        here = Path.cwd()
        return shlex.join(["less", str(report.relative_to(here) if report.is_relative_to(here) else report)])
    return command("replay" if candidates else "runs", *([run.id] if candidates else []), store=store)


def silent(run: StoredRun) -> bool:
    """Whether a run calls itself running and has given no sign of life for longer than any driver would."""
    return run.status == "running" and (seconds_since(run.updated) or 0.0) > SILENT_S


def print_json(value: Any, *, indent: int | None = None) -> None:
    """Print JSON to stdout with control and bidirectional characters as escapes of JSON."""
    print(plain_json(json.dumps(value, ensure_ascii=False, indent=indent)), flush=True)


def run_as_json(run: StoredRun) -> dict[str, Any]:
    """A run's record, the claim's counter left out."""
    record = asdict(run)
    del record["claim"]
    return record | {"driven": run.claim.owner is not None}


def money(usd: float, unpriced: int = 0) -> str:
    """`$0.0123`, `$0.0123 + 12 unpriced`, `unknown (12 unpriced)`: what is not known is said, and never zero."""
    known = f"${usd:,.2f}" if usd >= 100 else f"${usd:.4f}" if usd else "$0"
    if not unpriced:
        return known
    return f"{known} + {unpriced:,} unpriced" if usd else f"unknown ({unpriced:,} unpriced)"


def count(number: int, what: str) -> str:
    """`1 row`, `1,200 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def seconds_since(moment: str) -> float | None:
    """Seconds from an ISO 8601 time to now, for people only; None where it cannot be read."""
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return None
    return max(0.0, (datetime.now(UTC) - then.replace(tzinfo=then.tzinfo or UTC)).total_seconds())


def span(seconds: float | None) -> str:
    """`3 s`, `12 min`, `5 h`, `9 d`."""
    if seconds is None:
        return "?"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
