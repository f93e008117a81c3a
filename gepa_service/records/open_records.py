"""Open the records of a SQLite file or a MongoDB database."""

from pathlib import Path

from gepa_client.journal.database import Database
from gepa_service.records.store import RecordError, RecordStore, translated

APPLICATION_ID = 0x45565253  # "EVRS": distinguishes a file of records from a store of journals
PATIENCE_S = {"sqlite": 20.0, "mongodb": 5.0}
"""How long a lock, or a server that does not answer, is waited for: callers over HTTP wait as long."""


def open_records(url_or_path: str, *, patience_s: float | None = None) -> RecordStore:
    """Open the records of a `mongodb://` or `mongodb+srv://` URL, or of a SQLite file, which is created if absent.

    A MongoDB database may hold runs too.

    Raises:
        RecordError: what is named is no database of records. RecordsUnavailable: it cannot be opened now.
    """
    scheme, separator, _ = url_or_path.partition("://")
    if separator and scheme not in {"mongodb", "mongodb+srv"}:
        raise RecordError(f"no database of records is known for {scheme}://; give a path or a mongodb:// URL")
    with translated():
        return RecordStore(_mongo(url_or_path, patience_s) if separator else _sqlite(Path(url_or_path), patience_s))


def _sqlite(path: Path, patience_s: float | None) -> Database:
    from gepa_client.journal.sqlite import SqliteDatabase
    from gepa_service.records.checkpoints import PAGES_WITHOUT, Checkpoints

    return SqliteDatabase(
        path,
        patience_s=PATIENCE_S["sqlite"] if patience_s is None else patience_s,
        application_id=APPLICATION_ID,
        checkpoint_pages=PAGES_WITHOUT,
        checkpoints=Checkpoints(path),
    )


def _mongo(url: str, patience_s: float | None) -> Database:
    from gepa_client.journal.mongo import MongoDatabase

    return MongoDatabase(url, patience_s=PATIENCE_S["mongodb"] if patience_s is None else patience_s)
