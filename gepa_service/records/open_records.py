"""Open the records of a SQLite file or a MongoDB database."""

from gepa_service.records.store import RecordError, RecordStore, translated

APPLICATION_ID = 0x45565253  # "EVRS": distinguishes a file of records from a store of journals
SQLITE_PATIENCE_S, MONGO_PATIENCE_S = 20.0, 5.0
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
        if not separator:
            from gepa_client.journal.sqlite import SqliteDatabase

            patience_s = SQLITE_PATIENCE_S if patience_s is None else patience_s
            return RecordStore(SqliteDatabase(url_or_path, patience_s=patience_s, application_id=APPLICATION_ID))
        from gepa_client.journal.mongo import MongoDatabase

        return RecordStore(
            MongoDatabase(url_or_path, patience_s=MONGO_PATIENCE_S if patience_s is None else patience_s)
        )
