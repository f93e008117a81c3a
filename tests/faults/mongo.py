"""A MongoDB of one test's own that can be killed and comes back."""

from pathlib import Path
from typing import Self

from tests.gepa_client.journal.mongo_process import MongoProcess


class Mongo(MongoProcess):
    """Keeps its data in the folder; it ends with the `with` block."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        super().__init__(folder, in_memory=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
