"""How long it takes until a resumed run of 20,000 recorded examples does something new, and a replay of the demo's run.

The run is made by the command line against a stub in this process whose examples take no time: 200 validation rows,
about 100 candidates. It is resumed with a raised budget; the clock runs from the command's start to the first example
that arrives. `python benchmarks/resume.py [EXAMPLES]`; the last line is JSON.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import payload  # noqa: E402  the repository is not a package
from protocol import Candidate, CandidateItem, ComponentInfo, Example, Limits, ProgramInfo  # noqa: E402
from rpc_server.http import create_app, listening  # noqa: E402
from rpc_server.program.program import ResultDict  # noqa: E402
from rpc_server.settings import Settings  # noqa: E402
from sandbox_runtime import running_server  # noqa: E402

EXAMPLES = 20_000
TRAIN, VAL, TURNS, SLOTS = 100, 200, 2, 64
MORE = 300
"""Examples by which the budget is raised."""

LIMITS = {"resume_s": 10.0, "replay_demo_s": 3.0}
"""Seconds."""

ROUNDS = 3
TIMEOUT_S = 1200.0
DEMO = ROOT / "examples" / "tickets"
SEED_CANDIDATE = {"triage": "Name the team that the message is for.", "reply": "Answer in two sentences."}


class Stub:
    """A program whose every score and proposal is a digest; it records when examples arrived."""

    info = ProgramInfo(
        name="stub",
        version="1",
        components=[ComponentInfo(name=name) for name in SEED_CANDIDATE],
        seed_candidate=SEED_CANDIDATE,
    )
    capabilities = frozenset({"proposals", "reflective_datasets"})
    splits: Mapping[str, int] = {}
    ready = True
    limits = Limits(max_concurrency=SLOTS, max_batch_size=1000, max_request_bytes=64 * 2**20)

    def __init__(self) -> None:
        self.examples = 0
        self.arrived = threading.Event()
        self.arrived_at = 0.0

    async def evaluate(
        self,
        candidate: Candidate,
        batch: Sequence[Example],
        *,
        capture_traces: bool,
        items: Sequence[CandidateItem] | None = None,  # noqa: ARG002 - not offered
        timeout_s: float | None = None,  # noqa: ARG002  # see the interface
        group: str | None = None,  # noqa: ARG002  # see the interface
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """Score at once."""
        if not self.arrived.is_set():
            self.arrived_at = time.monotonic()
            self.arrived.set()
        self.examples += len(batch)
        for position, example in enumerate(batch):
            data: Any = example.data
            fraction = _fraction(json.dumps(candidate, sort_keys=True), data["text"])
            trace = {"trajectory": [{"text": data["text"]}]} if capture_traces else {}
            result = {"status": "ok", "score": fraction, "output": payload.ANSWER, "seconds": 0.0, **trace}
            on_result(position, result)

    async def score(
        self,
        batch: Sequence[Example],
        results: Sequence[ResultDict],
        *,
        timeout_s: float | None = None,
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """Not offered."""
        raise NotImplementedError

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer with records from traced results, and new texts from records."""
        if method == "make_reflective_dataset":
            evaluated = params["eval_batch"]["results"]
            records = [{"Feedback": f"scored {result['score']}"} for result in evaluated]
            return {"dataset": dict.fromkeys(params["components_to_update"], records)}
        assert method == "propose_new_texts", method
        asked = json.dumps([params["candidate"], params["reflective_dataset"]], sort_keys=True)
        text = " ".join(hashlib.blake2b(f"{asked}{line}".encode(), digest_size=20).hexdigest() for line in range(10))
        return {"texts": dict.fromkeys(params["components_to_update"], text)}

    async def close(self) -> None:
        """Nothing to end."""


def _fraction(*parts: str) -> float:
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % 1000 / 1000


@contextlib.contextmanager
def served(program: Stub) -> Iterator[str]:
    """Its address; it answers on a thread of its own."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(256)
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def serve() -> None:
        app = create_app(program, Settings(program="unused"), token=payload.TOKEN)
        async with listening(app, listener):
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)


def client(folder: Path, *arguments: object, token: str = payload.TOKEN) -> list[dict[str, Any]]:
    """Run `evolverpc` in `folder` to its good end; its events."""
    with started(folder, *arguments, token=token) as process:
        stdout, _ = process.communicate(timeout=TIMEOUT_S)
    if process.returncode != 0:
        raise SystemExit(f"evolverpc {' '.join(map(str, arguments))} ended with {process.returncode}\n{stdout[-2000:]}")
    return [json.loads(line) for line in stdout.splitlines()]


def started(folder: Path, *arguments: object, token: str = payload.TOKEN) -> "subprocess.Popen[str]":
    """`evolverpc` as a process of its own."""
    command = [sys.executable, "-m", "gepa_client", *map(str, arguments), "--store", str(folder / "store.db"), "--json"]
    environment = {**os.environ, "GEPA_TOKEN": token, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


def write_rows(folder: Path) -> list[object]:
    """Rows of about 800 bytes each; the flags that name them."""
    flags: list[object] = []
    for split, first, count in (("train", 0, TRAIN), ("val", TRAIN, VAL)):
        path = folder / f"{split}.jsonl"
        rows = (json.dumps(payload.row(number, TURNS)) for number in range(first, first + count))
        path.write_text("\n".join(rows) + "\n")
        flags += [f"--{split}set", path]
    return flags


def resume_s(folder: Path, examples: int) -> tuple[float, dict[str, Any]]:
    """Seconds from a resume's start to its first example, the best of some; and what there was to go through."""
    program = Stub()
    with served(program) as url:
        flags = ["--proposals", "1x4", "--selection-strategy", "best", "--max-metric-calls", examples, "--check", "off"]
        began = time.monotonic()
        events = client(folder, "optimize", url, *write_rows(folder), *flags)
        took = time.monotonic() - began
        recorded = program.examples
        candidates = sum(event["event"] == "candidate" for event in events)
        run_id = next(event["run_id"] for event in events if event["event"] == "started")
        times = []
        budget = max(examples, recorded)
        for _ in range(ROUNDS):
            budget += MORE
            program.arrived.clear()
            began = time.monotonic()
            with started(folder, "resume", run_id, "--max-metric-calls", budget) as process:
                stdout, _ = process.communicate(timeout=TIMEOUT_S)
            if process.returncode != 0 or not program.arrived.is_set():
                raise SystemExit(f"the run was not resumed: status {process.returncode}\n{stdout[-2000:]}")
            times.append(program.arrived_at - began)
    facts = {"recorded_examples": recorded, "candidates": candidates, "recording_s": round(took, 1)}
    return sorted(times)[len(times) // 2], facts


def replay_demo_s(folder: Path) -> float:
    """Seconds of `replay` of the demo's run in Python, with no server left."""
    command = [str(Path(sys.executable).parent / "gepa-server"), "--python", sys.executable]
    with running_server(command, cwd=DEMO / "python") as endpoint:
        events = client(folder, "optimize", endpoint.url, "--config", DEMO / "run.toml", token=endpoint.token)
    run_id = next(event["run_id"] for event in events if event["event"] == "started")
    began = time.monotonic()
    client(folder, "replay", run_id)
    return time.monotonic() - began


def main() -> int:
    """Measure, end with the line of JSON; 0 when both limits are kept."""
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else EXAMPLES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "demo").mkdir()
        demo_s = replay_demo_s(folder / "demo")
        print(f"replay of the demo's run: {demo_s:.2f} s", flush=True)
        seconds, facts = resume_s(folder, examples)
        print(f"resuming {facts['recorded_examples']:,} recorded examples: {seconds:.2f} s", flush=True)
    measured = {"resume_s": round(seconds, 2), "replay_demo_s": round(demo_s, 2)}
    print(json.dumps({**measured, "limits": LIMITS, **facts}))
    return int(any(measured[key] > limit for key, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
