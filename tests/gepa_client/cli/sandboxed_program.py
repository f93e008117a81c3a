"""A small program in a repository of its own, and `evolverpc` starting sandboxes from it."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gepa_client.conftest import Ran, command, environment
from tests.sandbox_runtime.source.repositories import commit
from tests.support.forked_client import ForkServer
from tests.support.processes import processes_with

PROGRAM = """
import time

seed_candidate = {"text": ""}

def run(example, candidate):
    time.sleep(0.005)
    return candidate["text"]

def score(example, output):
    return float(example["word"] in output.split()), example["word"]

def propose_new_texts(candidate, reflective_dataset, components_to_update):
    wanted = [record["Feedback"] for record in reflective_dataset["text"]]
    missing = [word for word in wanted if word not in candidate["text"].split()]
    return {"text": " ".join([*candidate["text"].split(), *missing[:1]])}

def finalize(best_candidate, best_score, run):
    return "it is written down"
"""


@dataclass(frozen=True)
class Place:
    """A folder with `repo` and rows in it, and where commands keep their state."""

    folder: Path
    state: Path
    fork_server: ForkServer

    @property
    def env(self) -> dict[str, str]:
        home = {name: str(self.state / name[4:-5].lower()) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}
        return {**environment(), **home, "XDG_RUNTIME_DIR": str(self.state), "TMPDIR": str(self.state)}

    def start(self, *arguments: object) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command(*arguments),
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: object) -> Ran:
        given = [str(argument) for argument in arguments]
        status, stdout, stderr = self.fork_server.run(given, folder=self.folder, environment=self.env)
        return Ran(status, stdout.decode(), stderr.decode())

    def optimize(self, output: str, program: str = "program", *, sandbox: str = "process") -> list[object]:
        """The arguments of a run, of a hundred calls or so."""
        rows = ("--trainset", "train.jsonl", "--valset", "val.jsonl", "--max-metric-calls", 90)
        where = ("--repo", f"repo/{program}", "--sandbox", sandbox, "--sandboxes", 2)
        return ["optimize", *where, *rows, "--check", "off", "--json", "--output", output]

    def result(self, output: str) -> dict[str, Any]:
        """The result of a run, without the fields that differ between equal runs."""
        found = json.loads((self.folder / output / "result.json").read_text())
        return {name: value for name, value in found.items() if name not in ("run_id", "run_dir")}

    def sandboxes(self) -> list[dict[str, Any]]:
        return self.run("sandboxes", "--json").events

    def processes(self) -> list[int]:
        """The processes of sandboxes that were started from here."""
        return sorted(processes_with("GEPA_MEMORY_MB=").keys() & processes_with(f"{self.state}/").keys())


TEXTS = {"program": PROGRAM, "slow": "import time\ntime.sleep(60)\n"}


@contextmanager
def place(
    folder: Path, fork_server: ForkServer, further: Mapping[str, Mapping[str, str]] | None = None
) -> Iterator[Place]:
    """`further`: programs by their names, each with its files."""
    settings = {"gepa.toml": 'program = "words.py"\nversion = "1"\nworkers = 1\n'}
    for name, files in {**{name: {"words.py": text} for name, text in TEXTS.items()}, **(further or {})}.items():
        commit(folder / "repo", {f"{name}/{file}": text for file, text in {**settings, **files}.items()})
    for split, words in (("train", "abcdefghijkl"), ("val", "acegik")):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps({"word": word}) + "\n" for word in words))
    state = Path(tempfile.mkdtemp(prefix="gepa-"))  # short, as sockets are in it
    found = Place(folder, state, fork_server)
    try:
        yield found
    finally:
        shutil.rmtree(state, ignore_errors=True)
