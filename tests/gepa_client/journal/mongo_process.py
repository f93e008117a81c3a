"""A MongoDB server of this test's own, spoken to over TCP by the real driver, that can be killed and started again."""

import subprocess
import sys
import time
from pathlib import Path

from pymongo import MongoClient
from pymongo.errors import ConnectionFailure

from evolverpc_common.network_addresses import free_port

START_S = 30.0
TRIES = 3


class MongoProcess:
    """`nx-27017` on a free port of loopback; `folder`: keeps its files, `in_memory`: which are then only logs."""

    def __init__(self, folder: Path, *, in_memory: bool = True) -> None:
        self._folder = folder
        self._data = "memory" if in_memory else str(folder / "data")
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        for _ in range(TRIES):  # another process may take the port first
            self.port = free_port()
            if self.start():
                return
        raise RuntimeError(f"nx-27017 does not start: {(folder / 'log').read_text()[-2000:]}")

    @property
    def url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}"

    def start(self) -> bool:
        """Start it with the data it had; whether it answers."""
        self._process = subprocess.Popen(
            [
                Path(sys.executable).parent / "nx-27017",
                *("--data-dir", self._data, "-p", str(self.port)),
                *("--log-file", self._folder / "log", "--pid-file", self._folder / "pid"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
        )
        give_up = time.monotonic() + START_S
        with MongoClient[dict[str, object]](self.url, serverSelectionTimeoutMS=200, connectTimeoutMS=200) as client:
            while self._process.poll() is None and time.monotonic() < give_up:
                try:
                    client.admin.command("ping")
                except ConnectionFailure:
                    continue
                return True
        self.kill()
        return False

    def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
