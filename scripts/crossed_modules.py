"""Print the functions that one example enters, from the adapter to the user's function and back; the last line is JSON.

`python scripts/crossed_modules.py` serves a program on the loopback interface and evaluates examples on it, recorded in
an SQLite store. The client, the server and the program's process each note every call of a Python function of this
repository, on any thread; those of the third example are counted, until nothing is left to do for it. A coroutine that
continues is a call.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import sys
sys.path.insert(0, {scripts!r})
import crossed_modules
sys.path.remove({scripts!r})
crossed_modules.note_calls({notes!r}, "program")
seed_candidate = {{"prompt": "seed"}}
def run(example, candidate, trace):
    return example["text"]
def score(example, output):
    return 1.0
"""
IDLE_S = 0.5
"""Seconds after an example in which client and server end what they do for it."""

Call = tuple[str, str, str]
"""A process, a file below the repository and a function in it."""


def note_calls(notes: str, process: str) -> None:
    """Append a line to the file `notes` for each call in this process from now on: its time, file and function."""
    descriptor = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    top, outside = f"{ROOT}/", (f"{ROOT}/.venv/", f"{ROOT}/scripts/")

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(top) and not code.co_filename.startswith(outside):
            path = code.co_filename[len(top) :]
            line = f"{time.monotonic()}\t{process}\t{path}\t{code.co_firstlineno} {code.co_name}\n"
            os.write(descriptor, line.encode())

    threading.setprofile(note)  # for the threads that start from now on
    sys.setprofile(note)


@contextmanager
def served(folder: Path, notes: str) -> Iterator[str]:
    """Serve the program while the block runs; return the server's address."""
    program = folder / "program.py"
    program.write_text(PROGRAM.format(scripts=str(ROOT / "scripts"), notes=notes))
    command = [sys.executable, "-I", __file__, "--server", notes, "--program", str(program), "--port", "0", "--json"]
    with subprocess.Popen(  # noqa: S603  # this script
        command, stdout=subprocess.PIPE, cwd=folder, env={**os.environ, "GEPA_TOKEN": "t" * 43}
    ) as server:
        assert server.stdout is not None  # noqa: S101  # of a pipe
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


def crossed() -> list[Call]:
    """Return the calls that one example makes, in their order."""
    from gepa_client import RemoteAdapter, Row
    from gepa_client.journal.buffer import JournalBuffer
    from gepa_client.journal.journal import Journal
    from gepa_client.journal.sqlite import SqliteDatabase
    from gepa_client.journal.store import Store
    from tests.gepa_client.journal.sample_runs import DRIVER, OWNER, RUN

    with tempfile.TemporaryDirectory() as folder:
        notes = f"{folder}/notes"
        store = Store(SqliteDatabase(Path(folder, "store.db")))
        store.create(RUN)
        store.claim(RUN.id, RUN.claim, OWNER, DRIVER)
        with served(Path(folder), notes) as url:
            note_calls(notes, "client")
            buffer = JournalBuffer(store, RUN.id, OWNER, lambda _interrupted: None)
            with RemoteAdapter(url, token="t" * 43, journal=Journal(RUN.id, buffer)) as adapter:
                for row in ("first", "second", "third"):
                    begun = time.monotonic()
                    batch = adapter.evaluate([Row(row, {"text": row})], {"prompt": "p"})
                    time.sleep(IDLE_S)
                ended = time.monotonic()
            buffer.close()
            store.close()
            sys.setprofile(None)
            threading.setprofile(None)
        if batch.scores != [1.0]:
            raise SystemExit(f"the example was not evaluated: {batch}")
        lines = [line.split("\t") for line in Path(notes).read_text().splitlines()]
    called = sorted((float(at), process, path, function) for at, process, path, function in lines)
    return [(process, path, function) for at, process, path, function in called if begun <= at <= ended]


def main() -> None:
    """Print the calls by file, with how often each happened, and the totals."""
    calls = Counter(crossed())
    for process in ("client", "server", "program"):
        own = {key: times for key, times in calls.items() if key[0] == process}
        for path in dict.fromkeys(key[1] for key in own):
            of_file = {key[2].split()[1]: times for key, times in own.items() if key[1] == path}
            print(f"{process}  {path}: " + ", ".join(f"{name} {times}" for name, times in of_file.items()))
        print(f"{process}: {len({key[1] for key in own})} files, {len(own)} functions, {sum(own.values())} calls")
    files = {path for _, path, _ in calls}
    print(json.dumps({"files": len(files), "functions": len(calls), "calls": sum(calls.values())}))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    if sys.argv[1:2] == ["--server"]:
        from rpc_server.cli import main as serve

        note_calls(sys.argv[2], "server")
        sys.argv[1:] = sys.argv[3:]
        serve()
    else:
        main()
