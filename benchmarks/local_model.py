"""Real messages, ten intents, and a small open model that both answers and reflects: what a run with it comes to.

    python benchmarks/local_model.py [FOLDER] [--seed N]

FOLDER as of `banking77.py`. SmolLM2-135M-Instruct is asked by `evolverpc demo-model --local`, so nothing leaves this
machine. Scores are on test rows that the search has not seen. The last line is JSON.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples" / "tickets")]

from programs import BIN, Run, optimize  # noqa: E402  the example is not a package

from benchmarks import banking77  # noqa: E402
from sandbox_runtime import running_server  # noqa: E402

ROWS = {"train": 40, "val": 30, "test": 60}
METRIC_CALLS = 240
CONCURRENCY = 4


def run(data: Path, seed: int, folder: Path) -> Run:
    """One optimization by the model that this process's environment names."""
    flags = [f"--max-metric-calls={METRIC_CALLS}", f"--seed={seed}", f"--concurrency={CONCURRENCY}"]
    flags += ["--reflection-lm=openai/local", "--example-timeout-s=120"]
    for split, count in ROWS.items():
        rows = (data / f"ten_{split}.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:count]
        (folder / f"{split}.jsonl").write_text("".join(rows), encoding="utf-8")
        flags.append(f"--{split}set={folder / split}.jsonl")
    program = str(ROOT / "benchmarks" / "intents_program.py")
    command = [str(BIN / "gepa-server"), "--python", sys.executable, "--program", program]
    with running_server(command, cwd=folder) as endpoint:
        return optimize("local model", endpoint, flags, folder / "run")


@contextlib.contextmanager
def served_model() -> Iterator[None]:
    """Serve the model during the block, under the variables of this process's environment."""
    command = [str(BIN / "evolverpc"), "demo-model", "--local", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            sys.exit(2)  # it has printed the reason
        os.environ |= json.loads(line)
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)


def main() -> int:
    """Run and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=banking77.DEFAULT_DATA)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    data = arguments.folder.resolve()
    if not (data / "ten_train.jsonl").is_file():
        print(json.dumps({"skipped": f"no data in {data}; give the folder of ten_train.jsonl and the others"}))
        return 0
    with tempfile.TemporaryDirectory() as folder, served_model():
        ran = run(data, arguments.seed, Path(folder))
        events = [json.loads(line) for line in (ran.folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    seed_score, best_score = ran.scores
    print(f"\n{ran.line}\nseed: {ran.texts[0]['prompt']}\nbest: {ran.texts[1]['prompt']}")
    figures = {
        "seed_score": seed_score,
        "best_score": best_score,
        "candidates": len(ran.result["candidates"]),
        "metric_calls": ran.result["total_metric_calls"],
        "seconds": round(ran.seconds, 1),
        "events": Counter(event["event"] for event in events),
    }
    print(json.dumps({**figures, "seed": arguments.seed}))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
