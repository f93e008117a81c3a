"""Run every benchmark in turn and rewrite `docs/benchmarks.md` with what they measured.

    python benchmarks/report.py [NAME | NAME=FILE ...]

Names run some of them; the page keeps its figures of the others, which it holds as JSON at its end. With a FILE, the
output of a run that has ended on this machine today, nothing runs, and only the page shows which limits it missed. The
exit status is 1 where a benchmark that ran failed or missed a limit, or where a FILE holds no figures; the page is
written all the same.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.page import NAMES, Figures, Measurement, held, page  # noqa: E402  the repository is not a package

PAGE = ROOT / "docs" / "benchmarks.md"


def run(name: str) -> tuple[Figures | None, int]:
    """Run one benchmark and show its output; return its figures, None if it failed before its end, and its status."""
    print(f"== {name}", flush=True)
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py")]
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line if line.strip() else last
    figures = figures_of(last)
    is_whole = process.returncode == 0 or (figures is not None and "limits" in figures)
    return (figures if is_whole else None), process.returncode


def figures_of(output: str) -> Figures | None:
    """Return the last line of an output as figures; None if it has none."""
    try:
        figures = json.loads(output.rstrip().rpartition("\n")[2])
    except ValueError:
        return None
    return figures if isinstance(figures, dict) else None


def machine(load: float | None) -> dict[str, str]:
    """Return what the figures depend on; `load`: processes that wanted a core before anything ran, if it is known."""
    packages = ("aiohttp", "gepa", "orjson", "pydantic")
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "load before": "not known" if load is None else f"{load:.2f}",
        "Python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else "unknown"


def main() -> int:
    """Run, write; 0 when everything ran and every limit was kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    asked = [argument.partition("=") for argument in parser.parse_args().names or NAMES]
    if unknown := sorted({name for name, _, _ in asked} - set(NAMES)):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if absent := [file for _, named, file in asked if named and not Path(file).is_file()]:
        parser.error(f"no file {', '.join(absent)}")
    found = held(PAGE.read_text(encoding="utf-8")) if PAGE.is_file() else {}
    bad = []
    load = os.getloadavg()[0]
    for name, named, file in asked:
        figures, status = (figures_of(Path(file).read_text(encoding="utf-8")), 0) if named else run(name)
        if figures is not None:
            found[name] = Measurement(machine(None if named else load), figures)
        if figures is None or status != 0:
            bad.append(f"{name} ({file} does not end with figures)" if named else f"{name} (exit status {status})")
    PAGE.write_text(page({name: found[name] for name in NAMES if name in found}), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    if bad:
        print(f"failed, or missed a limit: {', '.join(bad)}", file=sys.stderr)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
