"""Jobs that run at the same time stop once the tenant's money of the month is spent, and continue with more."""

import contextlib
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gepa_client.journal.store import open_store
from gepa_service.jobs import month_spending
from gepa_service.jobs.attempt import Revealed
from gepa_service.jobs.month_spending import NOTHING_LEFT, SpendingReader, first_id_of, month_of
from gepa_service.model.job import Job
from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from gepa_service.records.record import new_id, now
from tests.faults.execution_log import until
from tests.gepa_client.journal.sample_runs import ended as ended_attempt
from tests.gepa_client.journal.sample_runs import run, sent
from tests.gepa_service.jobs.test_secrets_of_jobs import model
from tests.gepa_service.platform import Platform, platform, working
from tests.sandbox_runtime.source.repositories import commit

CALL_USD = 0.01
LIMIT_USD = 0.12
CALLS = 24
"""Metric calls of each of two jobs: together they would cost four times the limit."""

PROGRAM = """
import json
import os
import time
import urllib.request

seed_candidate = {"prompt": "plain"}


def run(example, candidate):
    time.sleep(0.1)
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "m", "messages": [{"role": "user", "content": example["text"]}]}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["message"]["content"]


def score(example, output):
    return 0.5, "more"


def propose_new_texts(candidate, reflective_dataset, components_to_update):
    return {name: candidate[name] + "!" for name in components_to_update}
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Platform]:
    with platform(tmp_path) as opened:
        yield opened


@pytest.mark.long
@pytest.mark.timeout(300)
def test_jobs_that_run_at_once_stop_at_the_months_money_and_continue_when_there_is_more(
    service: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(month_spending, "KNOWN_S", 0.2)
    service.secrets["acme"] = Revealed({"OPENAI_API_KEY": "sk-of-acme"})
    service.tenant("acme", usd_per_month=LIMIT_USD)
    commit(tmp_path / "program", {"program.py": PROGRAM, "gepa.toml": 'program = "program.py"\n'})
    calls, lock = [0], threading.Lock()

    def count(_: str | None) -> None:
        with lock:
            calls[0] += 1

    rows = [{"text": f"row {at}"} for at in range(4)]
    with model(count) as base_url, working(service.parts()):
        settings = {
            "trainset": rows,
            "valset": rows,
            "max_metric_calls": CALLS,
            "concurrency": 1,
            "model_prices": {"m": [0, CALL_USD * 1_000_000]},
            "model_providers": {"openai": {"base_url": base_url, "key_env": "OPENAI_API_KEY"}},
        }
        jobs = [service.submit(tmp_path / "program", settings) for _ in range(2)]
        for job in jobs:
            service.until(job, lambda found: found.reason == NOTHING_LEFT)
        until(lambda: all(service.get(job).status == "pending" for job in jobs), "both jobs to wait")
        spent = SpendingReader().of(service.records, service.journals, "acme").usd
        assert LIMIT_USD <= spent < LIMIT_USD + 2 * CALLS * CALL_USD / 2, f"{spent:g} USD were spent"
        before = calls[0]
        time.sleep(0.6)  # in which running jobs would call the model six times
        assert calls[0] == before
        tenant = service.records.get(Tenant, TENANTS, "acme")
        assert tenant is not None
        service.records.replace(tenant.model_copy(update={"quotas": Quotas(usd_per_month=100.0)}))
        ended = [service.ended(job) for job in jobs]
    assert [each.status for each in ended] == ["completed", "completed"], [service.log(job) for job in jobs]
    assert all(each.attempts >= 2 and each.progress.metric_calls >= CALLS for each in ended)


def test_what_an_older_job_costs_this_month_counts_and_what_it_cost_before_does_not(
    service: Platform,
) -> None:
    ids = [f"{first_id_of(datetime(2020, 1, 1, tzinfo=UTC))}{at:020d}" for at in range(3)]
    months = (None, "2020-01", month_of(now()))
    for id_, month in zip(ids, months, strict=True):
        job = Job(tenant="acme", id=id_, repo_url="r", created_by="k", month=month, usd_before_month=0.25)
        service.records.insert(job)
    service.records.insert(Job(tenant="acme", id=new_id("job"), repo_url="r", created_by="k", month=months[2]))
    with contextlib.closing(open_store(service.journals_url)) as store:
        for id_ in ids:
            store.create(run(id_), [sent(0), ended_attempt(0, usage={"cost_usd": 1.0})])
    found = SpendingReader().of(service.records, service.journals, "acme")
    assert (found.jobs, found.usd) == (1, 0.75)
