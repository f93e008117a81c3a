"""An OIDC issuer on loopback: discovery, keys that a test replaces, tokens that it signs, and sign-in of a browser."""

import base64
import hashlib
import secrets
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
    """`requests`: how many it got. `status`: of its answers.

    `authorized`: what each code was asked for with. `nonce`: of tokens, in place of the one that was asked for.
    `places`: that it describes.
    """

    def __init__(self) -> None:
        self.url = ""
        self.requests = 0
        self.status = 200
        self.keys: dict[str, Any] = {}
        self.extra: list[dict[str, Any]] = []
        self.named: str | None = None
        self.secret = "the/secret-of-the-client"
        self.authorized: dict[str, dict[str, str]] = {}
        self.nonce: str | None = None
        self.places = {"jwks_uri": "keys", "authorization_endpoint": "authorize?p=b", "token_endpoint": "token"}

    async def answer(self, request: web.Request) -> web.Response:
        self.requests += 1
        if request.path == "/authorize":
            code = secrets.token_hex(8)
            self.authorized[code] = asked = dict(request.query)
            raise web.HTTPFound(f"{asked['redirect_uri']}?code={code}&state={asked['state']}")
        if request.path == "/token":
            return self.exchanged(request.headers.get("Authorization", ""), dict(await request.post()))
        found = {"/.well-known/openid-configuration": self.configuration, "/keys": self.key_set}[request.path]
        return web.json_response(found(), status=self.status)

    def configuration(self) -> dict[str, Any]:
        places = {name: f"{self.url}/{path}" for name, path in self.places.items()}
        return {"issuer": self.named or self.url, **places}

    def exchanged(self, authorization: str, form: dict[str, Any]) -> web.Response:
        """Answer with a token if the client and the code are right; each code is taken once."""
        asked = self.authorized.pop(form["code"], {})
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        pair = base64.b64encode(f"{AUDIENCE}:{self.secret.replace('/', '%2F')}".encode()).decode()
        wanted = {"code_challenge": challenge, "redirect_uri": form["redirect_uri"], "client_id": AUDIENCE, "p": "b"}
        if authorization != f"Basic {pair}" or wanted.items() - asked.items():
            return web.json_response({"error": "invalid_grant"}, status=400)
        name = next(iter(self.keys))
        return web.json_response({"id_token": self.token(name, nonce=self.nonce or asked["nonce"])})

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
