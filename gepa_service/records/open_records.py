"""Open the records of a SQLite file or a MongoDB database."""

from pathlib import Path

from gepa_service.records.store import RecordError, RecordStore


def open_records(url_or_path: str) -> RecordStore:
    """Open the records of a `mongodb://` or `mongodb+srv://` URL, or of a SQLite file, which is created if absent.

    Raises:
        RecordError: what is named is no database of records. RecordsUnavailable: it cannot be opened now.
    """
    scheme, separator, _ = url_or_path.partition("://")
    if not separator:
        from gepa_service.records.sqlite import SqliteRecords

        return SqliteRecords(Path(url_or_path))
    if scheme not in {"mongodb", "mongodb+srv"}:
        raise RecordError(f"no database of records is known for {scheme}://; give a path or a mongodb:// URL")
    from gepa_service.records.mongo import MongoRecords

    return MongoRecords(url_or_path)
