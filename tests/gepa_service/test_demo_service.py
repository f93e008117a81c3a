"""`make demo-service`, run as people run it: what it prints, and that it leaves nothing behind."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gepa_service.engines.ray_cluster import ray_cluster

DEMO = Path(__file__).resolve().parents[2] / "examples" / "service" / "demo.py"
LIMIT_S = 280

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]


def test_the_demo_improves_a_program_over_http_and_promotes_the_version(tmp_path: Path) -> None:
    check_story(tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_the_demo_is_the_same_story_on_a_ray_cluster_of_three_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ray_cluster(cpus=1) as cluster:
        for name in ("second", "third"):
            cluster.node(name, cpus=1)
        for name, value in cluster.variables.items():
            monkeypatch.setenv(name, value)
        check_story(tmp_path, "--engine", cluster.address)


def check_story(tmp_path: Path, *flags: str) -> None:
    """Run the demo, and check what it prints and leaves."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GEPA_")}
    done = subprocess.run(
        [sys.executable, str(DEMO), *flags],
        cwd=tmp_path,
        env=environment | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [scores] = re.findall(r"score (\d\.\d\d) -> (\d\.\d\d) on the validation rows", done.stdout)
    assert float(scores[1]) - float(scores[0]) >= 0.15
    assert "certificate: improved" in done.stdout
    [program] = re.findall(r"the active version is (program_\w+)", done.stdout)
    assert f"POST /program/{program}/promote" in done.stdout
    assert list(tmp_path.iterdir()) == []
