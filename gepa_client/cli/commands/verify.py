"""`evolverpc verify RUN|FILE`: derive a certificate again from the record of its run, and compare every number."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from evolverpc_common.display_text import command
from evolverpc_common.installation import installed_version
from gepa_client.certificate.certificate import FORMAT_VERSION, certify, mismatches, shortfall
from gepa_client.certificate.leaks import Leaks
from gepa_client.cli.arguments import AsJson, StoreUrl, read_object
from gepa_client.cli.commands.export_and_import import read_document
from gepa_client.cli.commands.store_access import open_cli_run, open_cli_store
from gepa_client.errors import NoCertificate
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.store import Store
from gepa_client.run.export_import import import_run
from gepa_client.run.output_folder import CERTIFICATE
from gepa_client.views.console import NOT_MET, echo, echo_next, fail, make_console, print_json, refuse, safe_line

REFUSED = 1
"""The certificate does not follow from the record."""

LONGEST = 1000
"""Characters of a line about a mismatch."""


def verify(
    certificate: Annotated[
        str, typer.Argument(metavar="RUN|FILE", help="A certificate.json, the folder that holds it, a run, or `last`.")
    ],
    exported: Annotated[
        Path | None,
        typer.Option("--exported", metavar="FILE", help="The run as `evolverpc export` wrote it, in place of a store."),
    ] = None,
    require: Annotated[
        Literal["improved"] | None,
        typer.Option("--require", help="Exit with 4 if a valid certificate has another verdict, or leaks weaken it."),
    ] = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Derive every number of a certificate again from the record of its run; print the verdict, or what differs.

    Exits with 0 if the certificate is valid, 1 if it does not follow from the record, 2 if either cannot be read, 4 if
    it is valid but not what --require asks for.
    """
    file = _file(certificate, store)
    claimed = _read(file)
    version = claimed.get("version")
    if version not in (None, FORMAT_VERSION):
        refuse(
            f"{file}: the format of this certificate has version {version}, and evolverpc {installed_version()} "
            f"verifies version {FORMAT_VERSION}: nothing was checked; use the evolverpc that wrote it"
        )
    with _record(store, exported, claimed["run"]) as (kept, run):
        wrong = mismatches(kept, run, claimed)
    if as_json:
        verdict = {"verdict": claimed["verdict"], "statement": claimed["statement"]} if not wrong else {}
        print_json({"file": str(file), "run": run.id, "valid": not wrong, **verdict, "mismatches": wrong})
    elif wrong:
        fail(f"{file} is not valid: it does not follow from the record of run {run.id}")
        for each in wrong:
            echo(make_console(stderr=True), f"  {safe_line(each, LONGEST)}")
        if any(each.startswith("digests.entries: ") for each in wrong):
            console = make_console(stderr=True)
            echo(console, "The journal has other entries than this file states. If the run was extended since, its")
            echo(console, "certificate is a newer one, in its folder:")
            echo_next(console, command("verify", run.id, store=store))
    else:
        echo(make_console(), safe_line(claimed["statement"], LONGEST))
        echo(make_console(), f"{safe_line(str(file))} is valid: each number follows from the record of {run.id}")
    if wrong:
        raise typer.Exit(REFUSED)
    if (why := shortfall(require, claimed["verdict"], Leaks.model_validate(claimed["leaks"]))) is not None:
        fail(f"{safe_line(str(file))} does not meet --require: {why}")
        raise typer.Exit(NOT_MET)


@contextmanager
def _record(store: str | None, exported: Path | None, run_id: str) -> Iterator[tuple[Store, StoredRun]]:
    """Open the store that holds the run, or a temporary one with the exported run."""
    if exported is None:
        with open_cli_run(store, run_id) as found:
            yield found
        return
    if store is not None:
        refuse("one at a time: --store and --exported were given")
    with (
        tempfile.TemporaryDirectory(prefix="gepa-verify-") as folder,
        open_cli_store(str(Path(folder) / "run.db"), create=True) as kept,
    ):
        run = import_run(kept, read_document(exported))
        if run.id != run_id:
            refuse(f"the certificate is of run {run_id}, and {exported} holds run {run.id}")
        yield kept, run


def _file(text: str, store: str | None) -> Path:
    """Return the file of the certificate: the path that the text is, else that of the run that it names."""
    path = Path(text)
    if path.is_dir():
        return path / CERTIFICATE
    if path.exists() or path.name != text or path.suffix == ".json":
        return path
    with open_cli_run(store, text) as (kept, run):
        found = Path(run.output or "") / CERTIFICATE
        if not found.is_file():
            try:
                certify(kept, run)
            except NoCertificate as error:
                refuse(f"run {run.id} has no certificate: {error}")
            again = command("replay", run.id, "--output", "again", store=store)
            refuse(
                f"the certificate of run {run.id} is not in its folder here: give its file, or write it by `{again}`"
            )
        return found


def _read(file: Path) -> dict[str, Any]:
    """Return the certificate as JSON, of which only `run` is known to be there."""
    found = read_object(file, "a certificate", object_pairs_hook=_members)
    if not isinstance(found.get("run"), str):
        refuse(f"{file}: not a certificate: it names no run; give the certificate.json in the folder of a run")
    return found


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; refuse two members of one name, of which readers may show either."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("two members have the same name")
    return members
