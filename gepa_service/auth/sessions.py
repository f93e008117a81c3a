"""What the service keeps in cookies, sealed: the session of a person, and a sign-in that is not finished.

Nothing is stored here: each request opens the cookie and checks the token itself, so that a revoked key ends all of its
sessions at once.
"""

import base64
import json
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import ClassVar, Literal, TypeVar

from cryptography.fernet import Fernet, InvalidToken

LONGEST_TOKEN = 2_000
"""Characters of a token that a cookie has room for, sealed; browsers drop cookies of more than 4,096 bytes."""


@dataclass(frozen=True)
class SignedIn:
    """What a session's cookie holds. `tenant`: which one a member of several tenants chose."""

    NAME: ClassVar[str] = "gepa_session"
    LIFETIME_S: ClassVar[int] = 12 * 3600
    SAME_SITE: ClassVar[Literal["strict", "lax"]] = "strict"

    token: str
    tenant: str | None = None


@dataclass(frozen=True)
class PendingSignIn:
    """A sign-in that an OIDC issuer has not answered yet. `tenant`: as of `SignedIn`.

    `state`, `nonce`, `verifier`: random texts of OpenID Connect and PKCE, new for each sign-in.
    """

    NAME: ClassVar[str] = "gepa_sign_in"
    LIFETIME_S: ClassVar[int] = 600
    SAME_SITE: ClassVar[Literal["strict", "lax"]] = "lax"
    """The issuer's redirect comes from another site; browsers send no `strict` cookie with it."""

    issuer: str
    tenant: str | None
    state: str
    nonce: str
    verifier: str


AnyCookie = SignedIn | PendingSignIn
Cookie = TypeVar("Cookie", SignedIn, PendingSignIn)


class Sessions:
    """Seals and opens cookies. `key`: 32 bytes that only the API has. `clock`: seconds since 1970."""

    def __init__(self, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._box = Fernet(base64.urlsafe_b64encode(key))
        self._clock = clock

    def seal(self, content: AnyCookie) -> str:
        """Return the value of the cookie."""
        data = json.dumps([content.NAME, *astuple(content)]).encode()
        sealed: bytes = self._box.encrypt_at_time(data, int(self._clock()))
        return sealed.decode()

    def open(self, type_: type[Cookie], cookie: str) -> Cookie | None:
        """Return what a cookie holds; None if that is another type, was not sealed here, or is too old."""
        try:
            data = self._box.decrypt_at_time(cookie.encode("utf-8", "replace"), type_.LIFETIME_S, int(self._clock()))
        except InvalidToken:
            return None
        name, *fields = json.loads(data)
        return type_(*fields) if name == type_.NAME else None
