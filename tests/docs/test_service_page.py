"""The commands of the service's guide, run by bash against a service of one machine."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.docs import pages
from tests.gepa_service.cli.test_up import up

PAGE = "docs/guides/service.md"
TICKETS = pages.ROOT / "examples" / "tickets"
WAIT_S = 240.0
REPLACED = {
    '"max_metric_calls": 300': '"max_metric_calls": 832, "options": {"reflection_minibatch_size": 40, '
    '"candidate_selection_strategy": "current_best"}',
    '"max_metric_calls": 500': '"max_metric_calls": 900',
}
"""What a command of the page has -> what the test gives it, so that the program improves for certain."""

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


@dataclass
class Reader:
    """Types the commands of the page into one shell after the other, with the variables that they set."""

    service: dict[str, Any]
    repository: Path
    variables: dict[str, str] = field(default_factory=dict)

    def type(self, command: str, timeout_s: float = WAIT_S) -> str:
        """Run a command of the page; return what it printed."""
        set_up = pages.block(PAGE, "export GEPA_SERVICE_URL=http://127.0.0.1:8600").text.splitlines()[2:]
        for there, here in {**REPLACED, "https://github.com/you/program": str(self.repository)}.items():
            command = command.replace(there, here)
        named = re.match(r"([A-Z]+)=", command)
        given = {"GEPA_SERVICE_URL": self.service["url"], "GEPA_SERVICE_KEY": self.service["key"], **self.variables}
        done = subprocess.run(
            ["bash", "-c", "\n".join([*set_up, command, *([f'echo "${named[1]}"'] if named else [])])],
            env=os.environ | given,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
        )
        if named:
            self.variables[named[1]] = done.stdout.strip()
        return done.stdout

    def answer(self, command: str) -> Any:
        """Run a command of the page; return the JSON that it printed."""
        answer = json.loads(self.type(command))
        assert not str(answer.get("type", "")).startswith("urn:evolverpc:"), answer
        return answer


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    sys.path.insert(0, str(pages.ROOT / "examples" / "service"))
    try:
        import demo
    finally:
        sys.path.pop(0)
    with up(tmp_path / "data") as service:
        yield Reader(service, demo.repository_in(tmp_path / "program"))


def test_the_commands_connect_optimize_follow_promote_and_deliver(reader: Reader) -> None:
    connect, optimize, look = pages.block(PAGE, "CLIENT=").commands()
    reader.type(connect)
    reader.type(optimize)
    assert reader.answer(look)["job_id"] == reader.variables["JOB"]
    stream, logs, pause, resume, budget = pages.block(PAGE, "api GET /job/$JOB/stream").commands()
    assert reader.answer(pause)["wanted"] == "pause"
    assert reader.answer(resume)["wanted"] == "run"
    assert reader.answer(budget)["max_metric_calls"] == 900
    streamed = reader.type(stream)
    assert streamed.rstrip().endswith("event: end\ndata: {}")
    assert "lines" in reader.answer(logs)
    job = reader.answer(look)
    assert job["status"] == "completed", job
    certificate, named, version, promote, active = pages.block(PAGE, "api GET /job/$JOB/certificate").commands()
    assert reader.answer(certificate)["verdict"] in {"improved", "no difference", "worse"}
    reader.type(named)
    assert reader.answer(version)["program_id"] == job["program_id"]
    assert reader.answer(promote)["program_id"] == job["program_id"]
    assert [each["program_id"] for each in reader.answer(active)["items"]] == [job["program_id"]]
    deliver = 'api POST /program/$PROGRAM/deliver \'{"mode": "patch"}\''
    assert json.loads(reader.type(deliver))["type"] == "urn:evolverpc:no-patch"


def test_the_commands_write_secrets_that_are_never_returned(reader: Reader) -> None:
    put, listed = pages.block(PAGE, "api PUT /secrets/OPENAI_API_KEY").commands()
    assert reader.type(put) == ""
    [secret] = reader.answer(listed)["items"]
    assert secret["name"] == "OPENAI_API_KEY"
    assert "sk-..." not in json.dumps(secret)
