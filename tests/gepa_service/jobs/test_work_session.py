"""What an attempt that was lost left at Modal."""

import asyncio
import shutil
from pathlib import Path

import pytest

from evolverpc_common.output_tail import OutputTail
from gepa_client.errors import ConnectionLost, StoreUnavailable
from gepa_client.sandboxing.session import SessionNotStarted
from gepa_client.sandboxing.session_interface import RUN_LABEL
from gepa_client.settings.run_config import RunConfig
from gepa_service.jobs.job_environment import basic_environment
from gepa_service.jobs.work_session import end_earlier_attempts, ended_by, saved_program
from sandbox_runtime import Command, PreparedEnvironment, Recipe, SandboxSpec
from sandbox_runtime.backends.modal.backend import ModalBackend
from tests.support.modal_cloud import found_by_this_process, loopback_modal_beside


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt install bubblewrap")
def test_sandboxes_of_earlier_attempts_are_ended_and_those_of_other_jobs_are_not() -> None:
    settings = RunConfig(repo="https://x.example/y", sandbox="modal", trainset="rows.jsonl", max_metric_calls=1)
    with loopback_modal_beside() as cloud, found_by_this_process(cloud):
        cloud.control.has_every_image = True

        async def start() -> list[str]:
            backend = ModalBackend()
            await backend.open()
            image = await backend.packages_image(("protocol",), ("client",), on_progress=lambda _: None)
            prepared = PreparedEnvironment(recipe=Recipe(), server=(), image=image.image)
            started = []
            for job in ("job_1", "job_1", "job_2"):
                spec = SandboxSpec(main=Command(()), prepared=prepared, labels={RUN_LABEL: job})
                started.append((await backend.begin(spec, OutputTail(0))).id)  # never ended, as by a lost attempt
            return started

        *_, other = asyncio.run(start())
        assert len(cloud.running) == 3
        asyncio.run(end_earlier_attempts("job_1", settings))
        assert cloud.running == [other]


def test_builds_of_jobs_use_the_mirrors_and_the_proxy_of_the_operator_and_no_other_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrors = {"UV_DEFAULT_INDEX": "https://pypi.example", "NPM_CONFIG_REGISTRY": "https://npm.example"}
    given = {**mirrors, "HTTPS_PROXY": "http://proxy.example:3128"}
    for name, value in {**given, "AWS_SECRET_ACCESS_KEY": "secret"}.items():
        monkeypatch.setenv(name, value)
    found = basic_environment(tmp_path)
    assert {name: found.get(name) for name in given} == given
    assert "AWS_SECRET_ACCESS_KEY" not in found


def test_the_program_json_of_a_folder_comes_before_its_other_files(tmp_path: Path) -> None:
    for name in ("metadata", "program"):
        (tmp_path / f"{name}.json").write_text(f'{{"of": "{name}"}}')
    assert saved_program(tmp_path) == {"of": "program"}


def test_what_infrastructure_ended_is_continued_and_other_work_fails_with_what_was_printed_last() -> None:
    assert [ended_by(each("away")).status for each in (StoreUnavailable, ConnectionLost)] == ["interrupted"] * 2
    (broken := SessionNotStarted("it does not start", must_publish=False)).add_note("the last line")
    assert ended_by(broken).status == "failed" and "the last line" in (ended_by(broken).reason or "")
