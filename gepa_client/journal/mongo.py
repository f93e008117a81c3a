"""A `Database` in MongoDB: its URL's secrets stay in this module, and it survives restarts of the server."""

import re
import time
import warnings
from collections.abc import Callable, Iterable
from typing import TypeVar

from bson.errors import BSONError
from pymongo import MongoClient, ReadPreference
from pymongo.database import Database
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    ExecutionTimeout,
    InvalidName,
    InvalidURI,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
)

from evolverpc_common.installation import installed_version
from gepa_client.errors import JournalError, StoreUnavailable, StoreVersionDiffers
from gepa_client.journal.database import SCHEMA_VERSION, Rows, Table, other_version
from gepa_client.journal.mongo_rows import Document, MongoRows

DATABASE = "evolverpc"
REACH_MS = 5_000
ANSWER_MS = 20_000
PATIENCE_S = 20.0
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
SHOWN_OPTIONS = frozenset({"authsource", "directconnection", "replicaset", "ssl", "tls", "tlscafile", "w"})

T = TypeVar("T")


class MongoDatabase:
    """The database of a URL's path, `evolverpc` if it names none.

    `patience_s`: how long a server that does not answer is waited for. Raises `StoreUnavailable` in about 5 s where no
    server answers at first, `StoreVersionDiffers`, or `JournalError` for an unusable URL or insufficient rights.
    """

    def __init__(self, url: str, *, patience_s: float = PATIENCE_S) -> None:
        self.url = without_secrets(url)
        self._patience_s = patience_s
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # pymongo only warns of options it then ignores
                self._client: MongoClient[Document] = MongoClient(
                    url,
                    serverSelectionTimeoutMS=min(REACH_MS, int(1000 * patience_s)),
                    connectTimeoutMS=REACH_MS,
                    socketTimeoutMS=ANSWER_MS,
                    retryWrites=False,  # a repeat is distinguished from a foreign write by its owner
                    journal=True,  # an answer GEPA has seen survives the server's own end
                )
            default: Database[Document] = self._client.get_default_database(DATABASE)
        except (ConfigurationError, InvalidURI, InvalidName, ValueError, UserWarning) as error:
            raise JournalError(f"{self.url} is not a usable MongoDB URL{_harmless(str(error), url)}") from None
        self._database = default.with_options(read_preference=ReadPreference.PRIMARY)
        try:
            self._tried(lambda: self._client.admin.command("ping"), patience_s=0)
            self._tried(self._check_version)
        except BaseException:
            self._client.close()
            raise

    def declare(self, tables: Iterable[Table]) -> None:
        def create() -> None:
            for table in tables:
                collection = self._database[table.name]
                if len(table.key) > 1:
                    collection.create_index([(name, 1) for name in table.key], unique=True)
                for columns in table.indexes:
                    collection.create_index([(name, 1) for name in columns])

        self._tried(create)

    def read(self, work: Callable[[Rows], T]) -> T:
        return self.write(work)

    def write(self, work: Callable[[Rows], T]) -> T:
        rows = MongoRows(self._database, self.url)
        return self._tried(lambda: work(rows))

    def _tried(self, work: Callable[[], T], *, patience_s: float | None = None) -> T:
        """Do the work, again after each time the server was away; so it must be safe to repeat."""
        give_up = time.monotonic() + (self._patience_s if patience_s is None else patience_s)
        pause = FIRST_PAUSE_S
        while True:
            try:
                return work()
            except (BSONError, OverflowError) as error:  # a document of 16 MiB, a number of more than 64 bits
                raise JournalError(f"this cannot be stored in {self.url}: {error}") from error
            except PyMongoError as error:
                if not _passes(error):
                    raise JournalError(f"the store {self.url}: {_words(error)}") from error
                if time.monotonic() >= give_up:
                    raise StoreUnavailable(
                        f"the store {self.url} does not answer ({_words(error)}); start it, or check the URL and resume"
                    ) from error
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def close(self) -> None:
        """Close the connections; safe to call twice."""
        self._client.close()

    def _check_version(self) -> None:
        schema = self._database["store"]
        found = schema.find_one({"_id": "schema"})
        if found is None:
            own = {"version": SCHEMA_VERSION, "evolverpc": installed_version()}
            schema.update_one({"_id": "schema"}, {"$setOnInsert": own}, upsert=True)
        elif found["version"] != SCHEMA_VERSION:
            raise StoreVersionDiffers(other_version(self.url, found["version"], found.get("evolverpc")))


def without_secrets(url: str) -> str:
    """Return the URL without user, password, and the options that may hold secrets."""
    scheme, _, rest = url.partition("://")
    # A password may hold any character by mistake; hosts cannot hold an @.
    hosts_and_path, _, options = rest.rpartition("@")[2].partition("?")
    shown = [option for option in options.split("&") if option.partition("=")[0].lower() in SHOWN_OPTIONS]
    return f"{scheme}://{hosts_and_path}{'?' if shown else ''}{'&'.join(shown)}"


def _harmless(message: str, url: str) -> str:
    """Return a parser's message about a URL, unless it quotes what may be a secret."""
    before, _, after = url.partition("://")[2].rpartition("@")
    options = [option.partition("=") for option in after.partition("?")[2].split("&")]
    secrets = [*re.split("[:/@]", before), *(value for name, _, value in options if name.lower() not in SHOWN_OPTIONS)]
    return "" if any(secret and secret in message for secret in secrets) else f": {message}"


def _passes(error: PyMongoError) -> bool:
    """Whether a server that was away, changed its primary or shut down explains it."""
    if isinstance(error, BulkWriteError):
        return not error.details.get("writeErrors")
    return isinstance(error, ConnectionFailure | ExecutionTimeout | WriteConcernError)


def _words(error: PyMongoError) -> str:
    """Return the message without what pymongo adds for its own developers."""
    if isinstance(error, OperationFailure) and isinstance(error.details, dict) and "errmsg" in error.details:
        return str(error.details["errmsg"])
    return str(error).partition(", Timeout:")[0].partition(" (configured timeouts:")[0]
