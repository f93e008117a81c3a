"""Job tokens: what the processes of one work are known by, only while one attempt does that work.

The optimizer's is valid for minutes. That of an attempt waits with it until its engine has a place.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import jwt
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gepa_service.auth.permissions import Principal, TokenRole
from gepa_service.model.work import Work
from gepa_service.records import RecordStore, now

ALGORITHM = "HS256"
ISSUER = "gepa-service"
LEEWAY_S = 30
"""By how much the clocks of two machines of the service may differ."""

LONGEST_S = 15 * 60
LIFETIME_S = LONGEST_S - LEEWAY_S
"""Of a token: with the leeway it is refused after `LONGEST_S` seconds."""

ATTEMPT_LIFETIME_S = 24 * 3600.0
"""Of the token of an attempt, which may wait for a node to be started. Each report is answered with a new one."""

_LIFETIMES: dict[TokenRole, float] = {"job": LIFETIME_S, "attempt": ATTEMPT_LIFETIME_S}
_CLAIMS = ["iss", "aud", "role", "tenant", "gen", "iat", "exp"]


class JobTokens:
    """Issues and checks the tokens of jobs.

    `master_keys`: the first signs; tokens that the others signed are accepted too, while a master key is replaced.
    `clock`: the present time in UTC, at which tokens are issued.
    """

    def __init__(self, records: RecordStore, master_keys: Sequence[bytes], clock: Callable[[], datetime] = now) -> None:
        self._records = records
        self._keys = [signing_key(master) for master in master_keys]
        self._clock = clock

    def issue(self, job: Work, *, role: TokenRole = "job") -> str:
        """Return a token for the present attempt at the job, which runs."""
        issued = self._clock()
        claims = {
            "iss": ISSUER,
            "aud": job.id,
            "role": role,
            "tenant": job.tenant,
            "gen": job.attempts,
            "iat": issued,
            "exp": issued + timedelta(seconds=_LIFETIMES[role]),
        }
        return jwt.encode(claims, self._keys[0], ALGORITHM)

    def check(self, token: str) -> Principal | None:
        """Return the process whose token this is; None if it is forged or expired, or another attempt has begun.

        The job is read each time, so that its optimizer's token ends with it. An attempt learns by its own that the
        work is over. Raises `RecordsUnavailable`.
        """
        claims = next((found for key in self._keys if (found := self._claims(token, key)) is not None), None)
        if claims is None:
            return None
        job = self._records.get(Work, str(claims["tenant"]), str(claims["aud"]))
        role = claims["role"]
        if job is None or job.attempts != claims["gen"] or (role == "job" and job.status != "running"):
            return None
        return Principal(job.tenant, role, f"{role}:{job.id}", job.id, job.attempts)

    def _claims(self, token: str, key: bytes) -> dict[str, Any] | None:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[ALGORITHM],
                issuer=ISSUER,
                leeway=LEEWAY_S,
                options={"require": _CLAIMS, "verify_aud": False},  # the audience names the job
            )
        except (jwt.InvalidTokenError, ValueError):  # ValueError: of a text that has no encoding
            return None
        longest_s = _LIFETIMES.get(claims["role"])
        return claims if longest_s and int(claims["exp"]) - int(claims["iat"]) <= longest_s + LEEWAY_S else None


def signing_key(master: bytes) -> bytes:
    """Return the key that signs job tokens, which is derived from the master key."""
    key: bytes = HKDF(SHA256(), 32, salt=None, info=b"evolverpc job tokens 1").derive(master)
    return key


def is_job_token(token: str) -> bool:
    """Return whether a text has the form of a job token, whose signature is not checked here."""
    try:
        return bool(jwt.get_unverified_header(token).get("alg") == ALGORITHM)
    except (jwt.InvalidTokenError, ValueError):
        return False
