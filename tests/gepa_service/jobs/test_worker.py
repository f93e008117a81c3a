"""A worker runs jobs to their ends, and leaves them whole when it is stopped."""

from pathlib import Path

import pytest

from gepa_service.model.program import Program
from tests.gepa_service.platform import Platform, platform, word_repository, word_settings, working


@pytest.fixture
def service(tmp_path: Path):  # type: ignore[no-untyped-def]
    with platform(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("sandbox", ["process", "bubblewrap"])
def test_a_job_becomes_a_version_of_its_program(service: Platform, tmp_path: Path, sandbox: str) -> None:
    service.sandbox = sandbox
    job = service.submit(word_repository(tmp_path / "repo"), word_settings(tmp_path / "log"))
    with working(service.parts()):
        ended = service.ended(job)
    assert ended.status == "completed", f"{ended!r}\n{service.log(job)}"
    assert ended.claim is None
    assert ended.progress.metric_calls >= 60
    program = service.records.get(Program, "acme", ended.program_id or "")
    assert program is not None
    assert program.score == ended.progress.best_score
    assert program.verdict in {"improved", "no difference", "worse"}
