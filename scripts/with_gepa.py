"""Run the tests of equality, races and acceptance with a checkout of GEPA in place of the installed one.

    python scripts/with_gepa.py PATH [ARGUMENT OF PYTEST ...]

PATH is a clone of https://github.com/gepa-ai/gepa, in which nothing is written. The exit status is that of pytest: not
0 if any test fails; 2 if PATH holds no GEPA.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TESTS = (
    *("tests/gepa_client/gepa/test_adapter.py", "tests/gepa_client/gepa/test_adapter_equality.py"),
    *("tests/gepa_client/gepa/test_batch_evaluate.py", "tests/gepa_client/gepa/test_known_results.py"),
    *("tests/gepa_client/gepa/test_interrupted_runs.py", "tests/gepa_client/gepa/test_concurrent_datasets.py"),
    *("tests/gepa_client/selection", "tests/gepa_client/run/test_sampled_races.py"),
    *("tests/gepa_client/run/test_reuse_and_acceptance.py", "tests/evolverpc/test_optimize_equality.py"),
)
"""Those of DSPy are not among them: DSPy pins a GEPA of its own."""


def main() -> int:
    """Run the tests; return the exit status."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    source = Path(sys.argv[1]).resolve() / "src"
    if not (source / "gepa").is_dir():
        print(f"with_gepa: no GEPA in {source}: give the folder of a clone of its repository", file=sys.stderr)
        return 2
    searched = [str(source), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(searched), "PYTHONDONTWRITEBYTECODE": "1"}
    imported = subprocess.run(
        [sys.executable, "-P", "-c", "import gepa; print(gepa.__file__)"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if not Path(imported.stdout.strip()).is_relative_to(source):
        print(f"with_gepa: GEPA cannot be imported from {source}\n{imported.stderr}", file=sys.stderr)
        return 2
    print(f"with {imported.stdout.strip()}", flush=True)
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--dist", "worksteal", *TESTS, *sys.argv[2:]]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode  # noqa: S603  # pytest and its arguments


if __name__ == "__main__":
    sys.exit(main())
