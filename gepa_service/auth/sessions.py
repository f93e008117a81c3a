"""Sessions of browsers: the token that a person signed in with, sealed in a cookie that scripts cannot read.

Nothing is stored here: each request opens the cookie and checks the token itself, so that a revoked key ends all of its
sessions at once.
"""

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.fernet import Fernet, InvalidToken

LIFETIME_S = 12 * 3600
"""Seconds after which a person signs in again."""

LONGEST_TOKEN = 2_000
"""Characters of a token that a cookie has room for, sealed; browsers drop cookies of more than 4,096 bytes."""


@dataclass(frozen=True)
class SignedIn:
    """What a cookie holds. `tenant`: which one a member of several tenants chose."""

    token: str
    tenant: str | None = None


class Sessions:
    """Seals and opens cookies. `key`: 32 bytes that only the API has. `clock`: seconds since 1970."""

    def __init__(self, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._box = Fernet(base64.urlsafe_b64encode(key))
        self._clock = clock

    def seal(self, who: SignedIn) -> str:
        """Return the value of the cookie."""
        content = json.dumps([who.token, who.tenant]).encode()
        sealed: bytes = self._box.encrypt_at_time(content, int(self._clock()))
        return sealed.decode()

    def open(self, cookie: str) -> SignedIn | None:
        """Return what a cookie holds; None if it was not sealed here, or longer than `LIFETIME_S` ago."""
        try:
            content = self._box.decrypt_at_time(cookie.encode("utf-8", "replace"), LIFETIME_S, int(self._clock()))
        except InvalidToken:
            return None
        token, tenant = json.loads(content)
        return SignedIn(token, tenant)
