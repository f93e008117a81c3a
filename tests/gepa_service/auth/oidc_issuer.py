"""An OIDC issuer on loopback: discovery, keys that a test replaces, and tokens that it signs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.support.loops import in_a_thread
from tests.support.web_hosts import web_host

AUDIENCE = "the-service"


class OidcIssuer:
    """`requests`: how many it got. `status`: of its answers."""

    def __init__(self) -> None:
        self.url = ""
        self.requests = 0
        self.status = 200
        self.keys: dict[str, Any] = {}
        self.extra: list[dict[str, Any]] = []
        self.named: str | None = None

    async def answer(self, request: web.Request) -> web.Response:
        self.requests += 1
        found = {"/.well-known/openid-configuration": self.configuration, "/keys": self.key_set}[request.path]
        return web.json_response(found(), status=self.status)

    def configuration(self) -> dict[str, Any]:
        return {"issuer": self.named or self.url, "jwks_uri": f"{self.url}/keys"}

    def key_set(self) -> dict[str, Any]:
        kinds = {"RS256": jwt.algorithms.RSAAlgorithm, "ES256": jwt.algorithms.ECAlgorithm}
        listed = [
            {**kinds[algorithm].to_jwk(key.public_key(), as_dict=True), "kid": name, "alg": algorithm, "use": "sig"}
            for name, (algorithm, key) in self.keys.items()
        ]
        return {"keys": listed + self.extra}

    def add_key(self, name: str, algorithm: str = "RS256", bits: int = 2048) -> None:
        key = rsa.generate_private_key(65537, bits) if algorithm == "RS256" else ec.generate_private_key(ec.SECP256R1())
        self.keys[name] = (algorithm, key)

    def token(self, name: str, /, headers: dict[str, Any] | None = None, **changes: Any) -> str:
        """A token signed by a key; a claim that is None is left out."""
        algorithm, key = self.keys[name]
        named = {"kid": name} | (headers or {})
        return jwt.encode(self.claims(**changes), key, algorithm, {k: v for k, v in named.items() if v is not None})

    def claims(self, **changes: Any) -> dict[str, Any]:
        present = int(time.time())
        claims = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "iat": present, "exp": present + 300} | changes
        return {name: value for name, value in claims.items() if value is not None}


@contextmanager
def oidc_issuer() -> Iterator[OidcIssuer]:
    """Serve an issuer while the block runs."""
    issuer = OidcIssuer()
    with in_a_thread(web_host(issuer.answer)) as host:
        issuer.url = f"http://{host}"
        yield issuer
