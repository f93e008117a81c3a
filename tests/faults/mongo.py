"""A MongoDB for one test: the one `MONGODB_URI` names, else one of our own that can be killed and comes back."""

import os
import uuid
from pathlib import Path
from typing import Self

from pymongo import MongoClient

from tests.gepa_client.journal.mongo_process import MongoProcess


class Mongo:
    """`url`: for `--store`, with a database of its own. `restarts`: whether it can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._name = f"faults_{uuid.uuid4().hex[:12]}"
        given = os.environ.get("MONGODB_URI")
        self.restarts = given is None
        if given is not None:
            base, _, options = given.partition("?")
            self.url = f"{base.rstrip('/')}/{self._name}" + (f"?{options}" if options else "")
        else:
            folder.mkdir()
            self._process = MongoProcess(folder, in_memory=False)
            self.url = f"{self._process.url}/{self._name}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.restarts:
            self.kill()
            return
        with MongoClient[dict[str, object]](self.url) as client:
            client.drop_database(self._name)

    def start(self) -> None:
        """Start it, with the data it had; returns when it answers."""
        assert self._process.start()

    def kill(self) -> None:
        """`kill -9`."""
        self._process.kill()
