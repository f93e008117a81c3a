"""Jobs that run at the same time stop once the tenant's money of the month is spent, and continue with more."""

import contextlib
from datetime import UTC, datetime

from gepa_client.journal.store import open_store
from gepa_service.jobs.month_spending import SpendingReader, first_id_of, month_id, month_of
from gepa_service.model.tenant import Usage
from gepa_service.model.work import Work
from gepa_service.records.record import new_id, now
from tests.gepa_client.journal.sample_runs import ended as ended_attempt
from tests.gepa_client.journal.sample_runs import run, sent
from tests.gepa_service.platform import Platform


def test_what_an_older_job_costs_this_month_counts_and_what_it_cost_before_does_not(
    service: Platform,
) -> None:
    ids = [f"{first_id_of(datetime(2020, 1, 1, tzinfo=UTC))}{at:020d}" for at in range(3)]
    months = (None, "2020-01", month_of(now()))
    for id_, month in zip(ids, months, strict=True):
        job = Work(tenant="acme", id=id_, repo_url="r", created_by="k", month=month, usd_before_month=0.25)
        service.records.insert(job)
    service.records.insert(Work(tenant="acme", id=new_id("job"), repo_url="r", created_by="k", month=months[2]))
    with contextlib.closing(open_store(service.journals_url)) as store:
        for id_ in ids:
            store.create(run(id_), [ended_attempt(0, usage={"cost_usd": 1.0})])
        assert store.claim(ids[2], store.run(ids[2]).claim, "driver", "driver")
    service.records.insert(Usage(tenant="acme", id=month_id(now()), work_usd=0.5, work_unpriced=2))
    reader = SpendingReader()
    found = reader.of(service.records, service.journals, "acme")
    assert (found.jobs, found.usd, found.unpriced) == (1, 0.75 + 0.5, 2)
    service.journals.write(ids[2], "driver", [sent(1), ended_attempt(1, usage={"cost_usd": 2.0})])
    assert reader.of(service.records, service.journals, "acme").usd == 2.75 + 0.5, "it has not ended"
