"""No secret of a tenant is in what is kept of its job, in any form, and a killed job repeats itself exactly."""

import base64
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gepa_client.errors import NoSuchRun
from gepa_service.model.program_version import Program
from gepa_service.model.work import Work
from gepa_service.service import Revealed
from tests.faults.execution_log import until
from tests.gepa_service.platform import Platform, processes_of, working
from tests.sandbox_runtime.source.repositories import commit
from tests.support.rounds import ALL

pytestmark = pytest.mark.timeout(300)
PASSED = 'sk-"passed" to/the+program: ü 0123'
WORD = "lettersonly"
UNUSED = "of-another-job-0123456789"
PROGRAM = """
import base64, hashlib, json, os, time
from urllib.parse import quote

secret, word = os.environ["DATABASE"], os.environ["WORD"]
echo = [secret, json.dumps({"again": secret}), quote(secret), word]
echo += [base64.b64encode(("u" * n + ":" + secret).encode()).decode() for n in range(3)]
seed_candidate = {"prompt": "plain " + secret}


def run(example, candidate):
    time.sleep(0.06)
    return {"echo": echo, secret: candidate["prompt"], "n": example["n"]}


def score(example, output):
    known = len(output[next(iter(set(output) - {"echo", "n"}))])
    return min(1.0, known / 500 + example["n"] / 1000), str(echo)


def propose_new_texts(candidate, reflective_dataset, components_to_update):
    seen = hashlib.sha256(json.dumps(reflective_dataset, sort_keys=True).encode()).hexdigest()
    return {name: candidate[name] + seen[: int(seen[0], 16)] + secret for name in components_to_update}


def finalize(best_candidate, best_score, run):
    with open("out/program.json", "w") as file:
        json.dump({"echo": echo}, file)
    return "with " + secret
"""
FORMS = [
    PASSED,
    WORD,
    UNUSED,
    json.dumps(PASSED)[1:-1],
    json.dumps(json.dumps(PASSED))[3:-3],
    json.dumps(PASSED, ensure_ascii=False)[1:-1],
    quote(PASSED),
    *(base64.b64encode(("u" * n + ":" + PASSED).encode()).decode()[8:40] for n in range(3)),
]


def submitted(service: Platform, folder: Path) -> Work:
    commit(
        folder / "program",
        {"program.py": PROGRAM, "gepa.toml": 'program = "program.py"\nartifacts = "out"\n', "out/kept": ""},
    )
    rows = [{"n": number} for number in range(6)]
    settings: dict[str, Any] = {
        "trainset": rows,
        "valset": rows,
        "max_metric_calls": 50,
        "reflection_minibatch_size": 2,
        "pass_env": ["DATABASE", "WORD"],
    }
    return service.submit(folder / "program", settings)


def recorded(service: Platform, job: Work) -> int:
    with contextlib.suppress(NoSuchRun):
        return service.journals.parts(job.id).get("search", 0)
    return 0


@pytest.mark.repeated
def test_no_secret_is_kept_and_a_killed_job_repeats_itself(service: Platform, tmp_path: Path) -> None:
    service.sandbox = "bubblewrap"
    service.secrets["acme"] = Revealed({"DATABASE": PASSED, "WORD": WORD}, unused=(UNUSED,))
    whole = [submitted(service, tmp_path)] if ALL else []
    killed = submitted(service, tmp_path)
    with working(service.parts(), service.place(), at_once=1):
        for job in whole:
            assert (found := service.ended(job)).status == "completed", f"{found!r}\n{service.log(job)}"
        until(lambda: recorded(service, killed) > 15, "the job to have evaluated some examples")
        for pid in processes_of(killed):
            with contextlib.suppress(ProcessLookupError):  # one ends with another
                os.kill(pid, signal.SIGKILL)
        ended = service.ended(killed)
    assert (ended.status, ended.attempts) == ("completed", 2), f"{ended!r}\n{service.log(killed)}"
    made = [[(each.texts, each.scores) for each in service.journals.candidates(job.id)] for job in (killed, *whole)]
    assert len(made[0]) > 1
    assert all(each == made[0] for each in made)
    program = service.records.get(Program, "acme", ended.program_id or "")
    assert program is not None
    assert program.program_json is not None, service.log(killed)
    assert "[redacted]" in str(program.program_json)
    kept = {
        path.name: {form for form in FORMS if form.encode() in path.read_bytes()}
        for path in (*tmp_path.glob("*.db*"), *(tmp_path / "jobs").rglob("*"))
        if path.is_file()
    }
    assert {name: found for name, found in kept.items() if found and name != "job.log"} == {}
