"""Whole runs in sandboxes of a loopback Modal: despite its failures, the result is right or the run can be resumed."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpclib import Status

from tests.gepa_client.cli.sandboxed_program import Place, place
from tests.gepa_client.cli.test_optimize_in_sandboxes import ARTIFACTS, artifacts_of, read_until
from tests.support.forked_client import ForkServer
from tests.support.modal_cloud import Cloud, loopback_modal_beside

pytestmark = [
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt install bubblewrap"),
    pytest.mark.long,
]


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    with loopback_modal_beside() as cloud:
        for name, value in cloud.env.items():
            monkeypatch.setenv(name, value)
        cloud.control.has_every_image = True
        yield cloud
        assert cloud.running == [], "nothing outlives its command"


@pytest.fixture
def here(tmp_path: Path, fork_server: ForkServer) -> Iterator[Place]:
    with place(tmp_path, fork_server, {"writing": ARTIFACTS}) as found:
        yield found


def at_modal(here: Place, output: str, program: str = "program") -> list[object]:
    """The arguments of a run in two sandboxes there."""
    arguments = here.optimize(output, program)
    arguments[arguments.index("process")] = "modal"
    return arguments


@pytest.mark.timeout(300)  # two runs, one of them beside the test
def test_deaths_refusals_and_expired_tokens_change_nothing_in_the_result_and_the_files_of_finalize(
    here: Place, cloud: Cloud
) -> None:
    undisturbed = here.run(*here.optimize("undisturbed", "writing"))
    assert undisturbed.status == 0, undisturbed.stderr

    cloud.faults.fail("SandboxCreateV2", Status.UNAVAILABLE, times=1)
    disturbed = here.start(*at_modal(here, "disturbed", "writing"))
    try:
        read_until(disturbed, "candidate", index=1)
        cloud.expire_connect_tokens()
        read_until(disturbed, "candidate", index=2)
        cloud.kill(cloud.running[0])
        _, stderr = disturbed.communicate(timeout=120)
    finally:
        disturbed.kill()
    assert disturbed.returncode == 0, stderr
    assert here.result("disturbed") == here.result("undisturbed")
    best = json.loads((here.folder / "undisturbed/best_candidate.json").read_text())["text"]
    for output in ("undisturbed", "disturbed"):
        assert artifacts_of(here.folder / output) == {"program.json": best, "deep/er/weights": best}
