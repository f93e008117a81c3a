"""Optimize a framework's own starter.

Fetches the starter, applies the patch that makes it optimizable, installs the framework, and runs `evolverpc
optimize` with the example's rows; all other flags go there. If `OPENAI_API_KEY` is not set, a scripted model answers.
Exit status 1: no gain.
"""

import argparse
import contextlib
import difflib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripted_model import scripted_model
from starter import HERE, Example, NotPrepared, examples

from sandbox_runtime import ServerFailed, running_server

BIN = Path(sys.executable).parent


def main() -> int:
    """Run; return the exit status."""
    by_name = {example.name: example for example in examples()}
    parser = argparse.ArgumentParser(
        description=__doc__, usage=f"run.py {'|'.join(by_name)} [FLAGS]", allow_abbrev=False
    )
    parser.add_argument("name", choices=by_name, help="a folder of examples/frameworks: %(choices)s", metavar="NAME")
    parser.add_argument("--output", type=Path, help="the run's folder, by default one in runs/")
    if len(sys.argv) == 1:
        print(f"Starters: {', '.join(by_name)}. Next: make example ARGS={next(iter(by_name))}")
        return 0
    arguments, flags = parser.parse_known_args()
    example = by_name[arguments.name]
    starter = example.starter
    print(f"Preparing {starter['path']} ({starter['licence']}) in {example.program}", flush=True)
    example.prepare()
    with _model(example) as variables:
        folder = optimize(example, variables, arguments.output, flags)
    return 0 if gained(example, folder) else 1


@contextlib.contextmanager
def _model(example: Example) -> Iterator[Mapping[str, str]]:
    if os.environ.get("OPENAI_API_KEY"):
        yield {}
        return
    print("OPENAI_API_KEY is not set: a scripted model answers, which costs nothing.")
    print("The run prints what the models that it names would have cost.", flush=True)
    own = example.folder / "knowledge.py"
    with scripted_model(own if own.is_file() else HERE / "help_desk.py") as variables:
        yield variables


def optimize(example: Example, variables: Mapping[str, str], output: Path | None, flags: list[str]) -> Path:
    """Run `evolverpc optimize`; return the run's folder.

    Raises:
        ServerFailed: the program's server did not start.
        subprocess.CalledProcessError: the run failed, and has printed the reason.
    """
    with running_server([str(BIN / "gepa-server")], cwd=example.program, env=variables) as server:
        command = [str(BIN / "gepa-client"), "optimize", server.url, "--config", str(example.folder / "run.toml")]
        command += ["--name", example.name] if output is None else ["--output", str(output)]
        environment = {**os.environ, **variables, "GEPA_TOKEN": server.token}
        subprocess.run([*command, *flags], env=environment, check=True)  # noqa: S603
    return output or max(Path("runs").glob(f"*-{example.name}"))  # ids of runs sort by time


def gained(example: Example, folder: Path) -> bool:
    """Print what a run changed; return whether the scores are better."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    best = result["best_idx"]
    for component, text in result["candidates"][0].items():
        lines = difflib.ndiff(text.splitlines(), result["candidates"][best][component].splitlines())
        print(f"\n{component}:", *(f"  {line}" for line in lines if not line.startswith("?")), sep="\n")
    validation, test = result["val_aggregate_scores"], result["test_scores"]
    pairs = {"validation": (validation[0], validation[best]), "test": (test["0"], test[str(best)])}
    scores = ", ".join(f"{split} {before:.2f} -> {after:.2f}" for split, (before, after) in pairs.items())
    print(f"\n{example.name}: {scores}, {result['total_metric_calls']} metric calls, ", end="")
    print(f"{example.lines_changed()} lines of the starter changed")
    return all(after > before for before, after in pairs.values())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (NotPrepared, ServerFailed) as error:
        sys.exit(f"run.py: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
