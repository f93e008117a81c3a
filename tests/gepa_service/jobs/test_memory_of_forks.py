"""A driver that is forked holds no secret of its job, nor of a job before it, in its memory."""

import json
from pathlib import Path

import pytest

from gepa_client.run.output_folder import LOG
from gepa_service.jobs import job_zygote as zygotes
from gepa_service.jobs.attempt import Revealed
from tests.faults.execution_log import until
from tests.gepa_service.jobs import memory_probe
from tests.gepa_service.jobs.memory_probe import BEGINNING, FOUND, LENGTH, digest_of
from tests.gepa_service.platform import platform, word_repository, word_settings, working

SECRETS = {"acme": "4ZbY0kRwq8vLd2NnTfJcXsHm1", "rival": "Q9uGe6PaWoV5iBhM3tKrDxSy7"}


@pytest.mark.long
def test_a_forked_driver_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygotes, "ISOLATED_MODULES", (*zygotes.ISOLATED_MODULES, memory_probe.__name__))
    secrets = {tenant: BEGINNING.decode() + rest for tenant, rest in SECRETS.items()}
    assert {len(secret) for secret in secrets.values()} == {LENGTH}
    with platform(tmp_path) as service:
        service.sandbox = "bubblewrap"
        service.secrets = {tenant: Revealed({"OPENAI_API_KEY": secret}) for tenant, secret in secrets.items()}
        repository = word_repository(tmp_path / "repo")
        with working(service.parts(), at_once=1):
            for tenant in secrets:
                job = service.submit(repository, word_settings(tmp_path / "log"), tenant)
                place = tmp_path / "jobs" / job.id / "results" / LOG

                def printed(log: Path = place) -> list[str]:
                    lines = log.read_text().splitlines() if log.exists() else []
                    return [line.removeprefix(FOUND) for line in lines if line.startswith(FOUND)]

                until(lambda: bool(printed()), f"the driver of {tenant} to have looked")
                found = json.loads(printed()[0])
                assert digest_of(BEGINNING + b"x" * (LENGTH - len(BEGINNING))) in found, "nothing can be found"
                assert not {digest_of(secret.encode()) for secret in secrets.values()} & set(found)
