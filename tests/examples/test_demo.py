"""What a stranger types first works: `make demo`'s script and the banking77 benchmark, over real servers."""

import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TICKETS = ROOT / "examples" / "tickets"
LINE = re.compile(r"(\w+): score (\d\.\d\d) -> (\d\.\d\d), (\d+) metric calls, \d+\.\d s")

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        shutil.which("npm") is None or not (ROOT / "clients" / "typescript" / "dist" / "index.js").exists(),
        reason="the TypeScript package is not built (make setup)",
    ),
    pytest.mark.usefixtures("built_example"),
]


@pytest.fixture(scope="session")
def built_example(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The TypeScript program is compiled once, though these tests may run in several processes."""
    with (tmp_path_factory.getbasetemp().parent / "tickets-example.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-c", "import programs; programs.build_typescript()"]
        subprocess.run(command, cwd=TICKETS, check=True, timeout=200)


def run(folder: Path, *command: str, **variables: str) -> list[str]:
    environment = {key: value for key, value in os.environ.items() if key != "GEPA_TOKEN"} | variables
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_demo_improves_both_programs_alike_and_shows_what_changed(tmp_path: Path) -> None:
    lines = run(tmp_path, str(TICKETS / "demo.py"), "--seed", "1", "--max-metric-calls", "528")
    end = lines[lines.index("== What changed") :]
    figures = [match.groups() for match in map(LINE.fullmatch, end) if match is not None]
    assert [language for language, *_ in figures] == ["python", "typescript"]
    assert figures[0][1:] == figures[1][1:]
    for _, seed, best, _ in figures:
        assert float(best) - float(seed) >= 0.15
    assert "Both languages went through the same texts." in end
    printed_by_the_run = [f"{line} (72 test rows)" for line in end if LINE.fullmatch(line)]
    assert set(printed_by_the_run) <= set(lines)
    assert "typescript is left out" not in "\n".join(end)
    reports = sorted((tmp_path / "runs").glob("*/report.html"))
    assert len(reports) == 2
    explains_what_changed(end, reports[0].parent)


def explains_what_changed(end: list[str], folder: Path) -> None:
    """The end of the demo fits 80 columns; it shows the recorded rules, and the line that decides three messages."""
    assert all(len(line) <= 80 for line in end), max(end, key=len)
    candidates = json.loads((folder / "result.json").read_text(encoding="utf-8"))["candidates"]
    best = json.loads((folder / "best_candidate.json").read_text(encoding="utf-8"))["rules"].split("\n")
    seed = candidates[0]["rules"].split("\n")
    rules = [line[4:] for line in end if re.match(r"  [ +] \S.* -> ", line) and "before: " not in line]
    assert rules == best
    new = [line[4:] for line in end if line.startswith("  + ")]
    assert new == [line for line in best if line not in seed]
    reasons = [line.rpartition(": ")[2] for line in end if line.startswith("    before: ")]
    assert len(reasons) == 3
    assert set(reasons) <= set(best)
    [following] = [line for line in end if line.startswith("Next: ")]
    assert following == f"Next: .venv/bin/evolverpc watch {folder.name}"
    shows_the_page(following.removeprefix("Next: .venv/bin/"), folder)


def shows_the_page(printed: str, folder: Path) -> None:
    """The command of the virtual environment prints the address of the run's page."""
    program, *words = shlex.split(printed)
    command = [str(Path(sys.executable).with_name(program)), *words]
    with subprocess.Popen(command, cwd=folder.parents[1], stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        address = page.stdout.readline()
        page.send_signal(signal.SIGINT)
        assert page.wait(60) == 0
    assert address.startswith("page: http://127.0.0.1:")
    assert address.strip().endswith(f"run={folder.name}")


@pytest.mark.long
def test_the_demo_needs_no_node(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    lines = run(tmp_path, str(TICKETS / "demo.py"), "--max-metric-calls", "240", PATH=str(tmp_path / "bin"))
    end = lines[lines.index("== What changed") :]
    assert len([line for line in end if line.startswith("typescript is left out: it needs Node 20")]) == 1
    assert len([line for line in end if LINE.fullmatch(line)]) == 1
    [report] = (tmp_path / "runs").glob("*/report.html")
    explains_what_changed(end, report.parent)


@pytest.mark.long
def test_banking77_is_learnt_through_a_server(tmp_path: Path) -> None:
    data = ROOT.parent / "shared" / "data" / "banking77"
    if not data.is_dir():
        pytest.skip(f"no data at {data}")
    figures = json.loads(run(tmp_path, str(ROOT / "benchmarks" / "banking77.py"))[-1])
    assert figures["python"]["seed_score"] == 0
    assert figures["python"]["best_score"] > max(0.80, figures["label_names"])
