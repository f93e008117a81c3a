"""Work tokens: accepted for one job, one attempt and some minutes; forged ones never."""

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import jwt
import pytest

from gepa_service.auth.job_tokens import LEEWAY_S, LIFETIME_S, LONGEST_S, JobTokens, is_job_token, signing_key
from gepa_service.model.work import Work
from gepa_service.records import RecordStore, now

MASTER = b"m" * 32


@pytest.fixture
def job(records: RecordStore) -> Work:
    made = Work(
        tenant="acme", id="job_1", repo_url="https://example.org/a/b", created_by="key:1", status="running", attempts=2
    )
    records.insert(made)
    return made


@pytest.mark.parametrize("change", [{"status": "cancelled"}, {"attempts": 3}])
def test_a_token_is_refused_once_its_job_ended_or_another_attempt_runs_it(
    records: RecordStore, job: Work, change: dict[str, Any]
) -> None:
    tokens = JobTokens(records, [MASTER])
    token = tokens.issue(job)
    records.replace(job.model_copy(update=change))
    assert tokens.check(token) is None


@pytest.mark.parametrize(
    ("age_s", "accepted"),
    [(LIFETIME_S, True), (LIFETIME_S + LEEWAY_S, False), (1 - LEEWAY_S, True), (-LEEWAY_S - 5, False)],
)
def test_a_token_is_accepted_for_fifteen_minutes_by_any_clock_within_the_leeway(
    records: RecordStore, job: Work, age_s: int, accepted: bool
) -> None:
    token = JobTokens(records, [MASTER], lambda: now() - timedelta(seconds=age_s)).issue(job)
    assert (JobTokens(records, [MASTER]).check(token) is not None) is accepted


def part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def claims(**changes: Any) -> dict[str, Any]:
    present = int(now().timestamp())
    made = {"iss": "gepa-service", "aud": "job_1", "role": "job", "tenant": "acme", "gen": 2}
    return made | {"iat": present, "exp": present + 60} | changes


def signed(changes: dict[str, Any], key: bytes | None = None, algorithm: str = "HS256") -> str:
    made = {name: value for name, value in claims(**changes).items() if value is not ...}
    return jwt.encode(made, signing_key(MASTER) if key is None else key, algorithm)


FORGED: dict[str, Callable[[], str]] = {
    "alg none": lambda: f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(claims())}.",
    "no signature": lambda: signed({}).rpartition(".")[0] + ".",
    "another algorithm": lambda: signed({}, algorithm="HS512", key=signing_key(MASTER) * 2),
    "another key": lambda: signed({}, key=b"x" * 32),
    "the master key itself": lambda: signed({}, key=MASTER),
    "another job": lambda: _with_claims(aud="job_2"),
    "a foreign tenant's job": lambda: signed({"tenant": "other"}),
    "valid too long": lambda: signed({"exp": int(now().timestamp()) + LONGEST_S + 60}),
    "expiry is a text": lambda: signed({"exp": "9999999999"}),
    "another issuer": lambda: signed({"iss": "elsewhere"}),
    "another role": lambda: signed({"role": "owner"}),
    "no expiry": lambda: signed({"exp": ...}),
    "several audiences": lambda: signed({"aud": ["job_1", "job_2"]}),
}


def _with_claims(**changes: Any) -> str:
    header, _, signature = signed({}).split(".")
    return f"{header}.{part(claims(**changes))}.{signature}"


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_token_is_refused(records: RecordStore, job: Work, forged: str) -> None:
    token, tokens = FORGED[forged](), JobTokens(records, [MASTER])
    is_job_token(token)
    assert tokens.check(token) is None
    assert tokens.check(signed({})) is not None, "it is refused for what is wrong with it alone"


def test_tokens_of_the_master_key_before_are_accepted_while_it_is_listed(records: RecordStore, job: Work) -> None:
    token = JobTokens(records, [b"o" * 32]).issue(job)
    assert JobTokens(records, [MASTER, b"o" * 32]).check(token) is not None
    assert JobTokens(records, [MASTER]).check(token) is None
    assert JobTokens(records, [MASTER]).check(JobTokens(records, [MASTER, b"o" * 32]).issue(job)) is not None
