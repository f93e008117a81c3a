"""Open the store of a path or URL, and find a run in it by a prefix of its id or by its name."""

import os
import re

from gepa_client.errors import JournalError, NoSuchRun
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.store import Store

DEFAULT_STORE = "runs/evolverpc.db"
STORE_VARIABLE = "GEPA_STORE"
LAST = "last"
SHOWN = 5


def default_store(given: str | None = None) -> str:
    """Return the given store, else `GEPA_STORE`, else a file in the folder `runs` of the current folder."""
    return given or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE


def named_store(store: str) -> str | None:
    """Return the store as a printed command names it; None for the default store."""
    return None if store == default_store() else store


def open_store(url_or_path: str) -> Store:
    """Open the store of a `mongodb://` or `mongodb+srv://` URL, or of a SQLite file, which is created if absent.

    Raises `StoreTooNew`, `StoreUnavailable`, or `JournalError` for what is no store.
    """
    scheme, separator, _ = url_or_path.partition("://")
    if separator and scheme in {"mongodb", "mongodb+srv"}:
        try:
            from gepa_client.journal.mongo import MongoStore  # an extra, and slow to import
        except ModuleNotFoundError as error:
            if error.name not in {"pymongo", "bson"}:
                raise
            raise JournalError(
                "a MongoDB store needs pymongo: run pip install '.[mongo]' in the folder of evolverpc"
            ) from error
        return MongoStore(url_or_path)
    if separator:
        raise JournalError(f"no store is known for {scheme}:// ; give a path for SQLite or a mongodb:// URL")
    if looks_like_a_url(url_or_path):
        raise JournalError(f"{url_or_path} is no file's name and no URL either: did you mean mongodb://HOST?")
    if not url_or_path:
        raise JournalError("the store has no name; give a path for SQLite or a mongodb:// URL")
    from gepa_client.journal.sqlite import SqliteStore

    return SqliteStore(url_or_path)


def looks_like_a_url(text: str) -> bool:
    """Whether a URL is meant rather than a file, well written or not, as in `mongodb//host`."""
    return "://" in text or re.match(r"mongodb(\+srv)?(:|//)", text) is not None


def find_run(store: Store, text: str) -> StoredRun:
    """Return the run with this id, else the `last` one created, else the only one with this prefix or name.

    Raises `NoSuchRun`, naming the matches if there are several.
    """
    try:
        return store.run(text)
    except NoSuchRun:
        runs = store.runs()
    if not runs:
        raise NoSuchRun(f"the store {store.url} holds no runs")
    if text == LAST:
        return runs[0]
    found = [run for run in runs if text and (run.id.startswith(text) or run.name == text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise NoSuchRun(f"{text!r} may be any of {_listed(found)}; give more of the id")
    raise NoSuchRun(f"the store {store.url} holds no run {text!r}; it has {_listed(runs)}")


def _listed(runs: list[StoredRun]) -> str:
    shown = ", ".join(run.id for run in runs[:SHOWN])
    return f"{shown} and {len(runs) - SHOWN} more" if len(runs) > SHOWN else shown
