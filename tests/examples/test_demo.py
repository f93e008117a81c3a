"""What a stranger types first works: `make demo`'s script and the banking77 benchmark, over real servers."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"(\w+): score (\d\.\d\d) -> (\d\.\d\d), (\d+) metric calls, \d+\.\d s")

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("demo"),  # both build the example's TypeScript
    pytest.mark.skipif(
        shutil.which("npm") is None or not (ROOT / "clients" / "typescript" / "dist" / "index.js").exists(),
        reason="the TypeScript package is not built (make setup)",
    ),
]


def run(folder: Path, *command: str) -> list[str]:
    environment = {key: value for key, value in os.environ.items() if key != "GEPA_TOKEN"}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_demo_improves_both_programs_alike_and_says_where_the_reports_are(tmp_path: Path) -> None:
    lines = run(tmp_path, str(ROOT / "examples" / "tickets" / "demo.py"), "--seed", "1")
    ends = [LINE.fullmatch(line) for line in lines[-2:]]
    assert all(ends), lines[-5:]
    figures = [match.groups() for match in ends if match is not None]
    assert [language for language, *_ in figures] == ["python", "typescript"]
    assert figures[0][1:] == figures[1][1:]
    for _, seed, best, _ in figures:
        assert float(best) - float(seed) >= 0.5
    assert "Both languages went through the same texts." in lines
    reports = [tmp_path / line.strip() for line in lines if line.endswith("report.md") and line.startswith("  ")]
    assert len(reports) == 2
    assert all(report.is_file() for report in reports)


def test_a_flag_that_does_not_exist_ends_the_demo_with_its_message(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "tickets" / "demo.py"), "--no-such-flag"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert "no-such-flag" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_banking77_is_learnt_alike_through_both_servers(tmp_path: Path) -> None:
    data = ROOT.parent / "shared" / "data" / "banking77"
    if not data.is_dir():
        pytest.skip(f"no data at {data}")
    figures = json.loads(run(tmp_path, str(ROOT / "benchmarks" / "banking77.py"))[-1])
    assert figures["identical"] is True
    for language in ("python", "typescript"):
        assert figures[language]["seed_score"] == 0
        assert figures[language]["best_score"] > 0.80
    assert figures["python"]["best_score"] == figures["typescript"]["best_score"] > figures["label_names"]


def test_banking77_says_what_is_missing_where_there_is_no_data(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "banking77.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "ten_train.jsonl" in done.stderr
