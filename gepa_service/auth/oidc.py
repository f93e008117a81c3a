"""Check the tokens of OIDC issuers that the service was configured with.

See https://openid.net/specs/openid-connect-discovery-1_0.html and RFC 7519.
"""

import functools
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import jwt

from evolverpc_common.network_addresses import is_loopback

ALGORITHMS = ("RS256", "ES256")
LEEWAY_S = 30
FRESH_S = 3600.0
"""Keys of an issuer are read again after this."""

STALE_S = 24 * 3600.0
"""Keys are used for this long while their issuer does not answer."""

PAUSE_S = 60.0
"""Between two readings of keys, however many tokens name an unknown one."""

FAILED_PAUSE_S = 5.0
"""Between two readings, if the first failed."""

TIMEOUT_S = 5.0
LARGEST_ANSWER = 1 << 20
LONGEST_SUBJECT = 255
LONGEST_REASON = 300
SMALLEST_RSA_BITS = 2048


class IssuerUnavailable(Exception):
    """An issuer cannot be asked now for its keys or addresses; trying later can help."""


class TokenRefused(Exception):
    """A token that is not accepted; the text states why."""


@dataclass(frozen=True)
class OidcIssuer:
    """An issuer whose tokens are accepted. `audience`: the service's client id there; `secret`: the client's, if any.

    Raises:
        ValueError: the URL is neither https nor on this machine, or there is no audience.
    """

    issuer: str
    audience: str
    secret: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not _is_safe(self.issuer):
            raise ValueError(f"{self.issuer} is not the https URL of an OIDC issuer")
        if not self.audience:
            raise ValueError(f"the OIDC issuer {self.issuer} needs an audience: the service's client id there")

    @functools.cached_property
    def has_page(self) -> bool:
        """Whether people sign in there; else it has tokens for workloads alone. Blocks. Raises `IssuerUnavailable`."""
        return _is_safe(_description(self.issuer).get("authorization_endpoint"))


@dataclass(frozen=True)
class Identity:
    """Who an accepted token is about, in the words of its issuer."""

    issuer: str
    subject: str


class OidcTokens:
    """Checks tokens of `issuers`, by URL. Safe to use from several threads. `clock`: seconds that only rise."""

    def __init__(self, issuers: Sequence[OidcIssuer], clock: Callable[[], float] = time.monotonic) -> None:
        self.issuers = {each.issuer: each for each in issuers}
        self._keys = {each: _IssuerKeys(each, clock) for each in self.issuers}

    def check(self, token: str) -> Identity:
        """Return who a token is about. Blocks.

        Raises:
            TokenRefused: it is no valid token of these issuers.
            IssuerUnavailable: the keys of its issuer cannot be read.
        """
        try:
            header = jwt.get_unverified_header(token)
            claims = jwt.decode(token, options={"verify_signature": False})
            algorithm, named = header.get("alg"), claims.get("iss")
            if not isinstance(named, str) or named not in self.issuers:
                raise ValueError("its issuer is none of this service")
            if algorithm not in ALGORITHMS:
                raise ValueError(f"it is signed with {algorithm}, not with {' or '.join(ALGORITHMS)}")
            key = self._keys[named].find(header.get("kid"), algorithm)
            if key is None:
                raise ValueError("its issuer lists no key that may have signed it")
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self.issuers[named].audience,
                issuer=named,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
            if not 0 < len(claims["sub"]) <= LONGEST_SUBJECT:
                raise ValueError(f"its subject has more than {LONGEST_SUBJECT} characters, or none")
        except (jwt.InvalidTokenError, ValueError) as error:
            raise TokenRefused(str(error)) from None
        return Identity(named, claims["sub"])


class _IssuerKeys:
    """The keys of one issuer, read when they are needed, at most once in a while."""

    def __init__(self, issuer: str, clock: Callable[[], float]) -> None:
        self._issuer = issuer
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: list[jwt.PyJWK] = []
        self._read_at: float | None = None
        self._next_at = float("-inf")
        self._failure: str | None = None

    def find(self, key_id: object, algorithm: str) -> jwt.PyJWK | None:
        """Return the key of this id, or the only one for the algorithm if the token names none.

        One thread reads the keys; others use those that are known, so that a slow issuer does not hold all threads.
        """
        present = self._clock()
        found = self._chosen(key_id, algorithm)
        if found is None or self._age_s(present) >= FRESH_S:
            wait_s = TIMEOUT_S if self._read_at is None and self._failure is None else 0.0
            if self._lock.acquire(timeout=wait_s):
                try:
                    if present >= self._next_at:
                        self._read(present)
                finally:
                    self._lock.release()
            elif found is None:
                raise IssuerUnavailable(f"the OIDC issuer {self._issuer} is being asked for its keys")
            found = self._chosen(key_id, algorithm)
        if self._failure is not None and (found is None or self._age_s(present) >= STALE_S):
            raise IssuerUnavailable(f"the OIDC issuer {self._issuer} cannot be asked for its keys ({self._failure})")
        return found

    def _age_s(self, present: float) -> float:
        return float("inf") if self._read_at is None else present - self._read_at

    def _chosen(self, key_id: object, algorithm: str) -> jwt.PyJWK | None:
        fitting = [key for key in self._keys if key.algorithm_name == algorithm]
        if key_id is None:
            return fitting[0] if len(fitting) == 1 else None
        return next((key for key in fitting if key.key_id == key_id), None)

    def _read(self, present: float) -> None:
        try:
            listed = fetched(address_of(self._issuer, "jwks_uri")).get("keys")
        except IssuerUnavailable as error:
            self._failure = str(error)
            self._next_at = present + FAILED_PAUSE_S
            return
        keys = [_key_of(each) for each in listed] if isinstance(listed, list) else []
        self._keys = [key for key in keys if key is not None]
        self._failure = None
        self._read_at = present
        self._next_at = present + PAUSE_S


def _key_of(described: Any) -> jwt.PyJWK | None:
    """Return a key that may verify signatures; None for any other."""
    if not isinstance(described, dict) or described.get("use", "sig") != "sig":
        return None
    try:
        key = jwt.PyJWK(described)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if key.algorithm_name not in ALGORITHMS:
        return None
    return None if key.key_type == "RSA" and key.key.key_size < SMALLEST_RSA_BITS else key


def address_of(issuer: str, name: str) -> str:
    """Return an address that an issuer's description names. Blocks. Raises `IssuerUnavailable`."""
    place = _description(issuer).get(name)
    if not _is_safe(place):
        raise IssuerUnavailable(f"{issuer} describes no https address as {name}")
    return str(place)


def _description(issuer: str) -> dict[str, Any]:
    """Return what an issuer publishes of itself. Blocks. Raises `IssuerUnavailable`."""
    address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    found = fetched(address)
    if found.get("issuer") != issuer:
        raise IssuerUnavailable(f"{address} describes another issuer")
    return found


def fetched(address: str, method: str = "GET", **request: Any) -> dict[str, Any]:
    """Return the JSON object at an address. Blocks. Raises `IssuerUnavailable` for any other answer."""
    try:
        with (
            httpx.Client(timeout=TIMEOUT_S) as client,
            client.stream(method, address, **request) as response,
        ):
            data = b""
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) > LARGEST_ANSWER:
                    raise IssuerUnavailable(f"{address} answers with more than {LARGEST_ANSWER} bytes")
        answer = httpx.Response(response.status_code, content=data)
        if not answer.is_success:
            raise IssuerUnavailable(f"{address} answers {answer.status_code}: {answer.text[:LONGEST_REASON]}")
        found = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise IssuerUnavailable(f"{address}: {error or type(error).__name__}") from None
    if not isinstance(found, dict):
        raise IssuerUnavailable(f"{address} answers with no JSON object")
    return found


def _is_safe(url: object) -> bool:
    try:
        parts = urllib.parse.urlsplit(url if isinstance(url, str) else "")
    except ValueError:
        return False
    return bool(parts.scheme == "https" and parts.hostname) or (parts.scheme == "http" and is_loopback(parts.hostname))
