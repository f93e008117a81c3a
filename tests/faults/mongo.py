"""A MongoDB for one test: the one `MONGODB_URI` names, else one of our own that can be killed and comes back."""

import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Self

from pymongo import MongoClient

from tests.faults.execution_log import until

START_S = 30.0


class Mongo:
    """`url`: for `--store`, with a database of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        given = os.environ.get("MONGODB_URI")
        self.restarts = given is None
        name = self._name = f"faults_{uuid.uuid4().hex[:12]}"
        if given is not None:
            base, _, options = given.partition("?")
            self.url = f"{base.rstrip('/')}/{name}" + (f"?{options}" if options else "")
        else:
            folder.mkdir()
            self._port = _free_port()
            self.url = f"mongodb://127.0.0.1:{self._port}/{name}"

    def __enter__(self) -> Self:
        if self.restarts:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.restarts:
            with MongoClient[dict[str, object]](self.url) as client:
                client.drop_database(self._name)
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)

    def start(self) -> None:
        """Start it, with the data it had; returns when it takes connections."""
        command = [
            Path(sys.executable).parent / "nx-27017", "--db", self._folder / "store.db", "-p", str(self._port),
            "--log-file", self._folder / "log", "--pid-file", self._folder / "pid",
        ]  # fmt: skip
        with (self._folder / "output").open("ab") as output:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=output, stderr=output)
        until(self._listens, "MongoDB to listen", START_S)

    def kill(self) -> None:
        """`kill -9`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)
        self._process = None

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "output").read_text()
        try:
            with socket.create_connection(("127.0.0.1", self._port), 1):
                return True
        except OSError:
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
