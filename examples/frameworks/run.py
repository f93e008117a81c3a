"""Optimize a framework's own starter: `python examples/frameworks/run.py NAME [flags of gepa-client optimize]`.

It fetches the starter, applies the patch that makes it optimizable, installs the framework, and runs `gepa-client
optimize` with the example's rows. If `OPENAI_API_KEY` is not set, a scripted model answers. Exit status 1: no gain.
"""

import contextlib
import difflib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripted_model import scripted_model
from starter import Example, NotPrepared, examples

from sandbox_runtime import ServerFailed, running_server

BIN = Path(sys.executable).parent


def main(arguments: list[str]) -> int:
    """Run; return the exit status."""
    by_name = {example.name: example for example in examples()}
    if not arguments or arguments[0] not in by_name:
        print(f"{__doc__}\nNAME: {', '.join(by_name)}")
        return 0 if arguments[:1] == ["--help"] else 2
    example = by_name[arguments[0]]
    print(f"Preparing {example.program}", flush=True)
    example.prepare()
    with _model(example) as variables:
        return 0 if optimize(example, variables, arguments[1:]) else 1


@contextlib.contextmanager
def _model(example: Example) -> Iterator[Mapping[str, str]]:
    if os.environ.get("OPENAI_API_KEY"):
        yield {}
        return
    print("OPENAI_API_KEY is not set: a scripted model answers, which knows the example's rows and costs nothing.")
    print("The run prints what the models that it names would have cost.", flush=True)
    with scripted_model(example.folder / "knowledge.py") as variables:
        yield variables


def optimize(example: Example, variables: Mapping[str, str], flags: list[str]) -> bool:
    """Run `gepa-client optimize` and print what it changed; return whether the scores are better.

    Raises:
        ServerFailed: the program's server did not start.
        subprocess.CalledProcessError: the run failed, and has printed the reason.
    """
    folder = Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{example.name}"
    with running_server([str(BIN / "gepa-server")], cwd=example.program, env=variables) as server:
        command = [str(BIN / "gepa-client"), "optimize", server.url, "--config", str(example.folder / "run.toml")]
        environment = {**os.environ, **variables, "GEPA_TOKEN": server.token}
        subprocess.run([*command, "--output", str(folder), *flags], env=environment, check=True)  # noqa: S603
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
        sys.exit(main(sys.argv[1:]))
    except (NotPrepared, ServerFailed) as error:
        sys.exit(f"run.py: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
