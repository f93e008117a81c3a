"""Real messages, ten intents, no model: how far a text of word weights gets.

    python benchmarks/banking77.py [FOLDER] [--seed N]

FOLDER holds `ten_train.jsonl`, `ten_val.jsonl` and `ten_test.jsonl` of rows `{"text", "label"}`. The scores are on the
test rows, which neither proposals nor selection have seen. The last line is JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_DATA = ROOT.parent / "shared" / "data" / "banking77"
SPLITS = ("train", "val", "test")
MINIBATCH = 20
METRIC_CALLS = 3000

sys.path[:0] = [str(ROOT), str(ROOT / "examples" / "tickets")]

from programs import BIN, Run, optimize  # noqa: E402  the example is not a package

from benchmarks import word_weights  # noqa: E402
from sandbox_runtime import ServerFailed, running_server  # noqa: E402


def label_names_score(rows: list[dict[str, str]]) -> float:
    """Return the share that rules made of the labels' own names route right: what no optimisation at all would give."""
    labels = sorted({row["label"] for row in rows})
    rules = "\n".join(f"{label}: {', '.join(sorted(word_weights.words(label)))}" for label in labels)
    outputs = [word_weights.run(row, {"rules": rules}) for row in rows]
    right = [bool(word_weights.score(row, output)[0]) for row, output in zip(rows, outputs, strict=True)]
    return sum(right) / len(rows)


def run(data: Path, seed: int, folder: Path) -> Run:
    """One optimisation through a server of its own."""
    flags = [f"--{split}set={data / f'ten_{split}.jsonl'}" for split in SPLITS]
    flags += [f"--reflection-minibatch-size={MINIBATCH}", f"--max-metric-calls={METRIC_CALLS}", f"--seed={seed}"]
    flags += ["--candidate-selection-strategy=current_best"]
    command = [str(BIN / "gepa-server"), "--python", sys.executable, "--program", word_weights.__file__]
    with running_server(command, cwd=folder) as endpoint:
        return optimize("banking77", endpoint, flags, folder)


def main() -> int:
    """Run and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    data = arguments.folder.resolve()
    if data == DEFAULT_DATA.resolve() and not data.is_dir():
        print(json.dumps({"skipped": f"no data in {data}; give the folder of ten_train.jsonl and the others"}))
        return 0
    missing = [f"ten_{split}.jsonl" for split in SPLITS if not (data / f"ten_{split}.jsonl").is_file()]
    if missing:
        print(f"banking77: no {', '.join(missing)} in {data}; give their folder as an argument", file=sys.stderr)
        return 2
    test = [json.loads(line) for line in (data / "ten_test.jsonl").read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        ran = run(data, arguments.seed, Path(folder))
    baseline = label_names_score(test)
    seed_score, best_score = ran.scores
    print(f"\n{ran.line}\nlabel names as keywords, without optimisation: score {baseline:.2f}")
    figures = {
        "seed_score": seed_score,
        "best_score": best_score,
        "metric_calls": ran.result["total_metric_calls"],
        "seconds": round(ran.seconds, 2),
    }
    print(json.dumps({"python": figures, "label_names": baseline, "seed": arguments.seed}))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ServerFailed as error:
        sys.exit(f"banking77: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
