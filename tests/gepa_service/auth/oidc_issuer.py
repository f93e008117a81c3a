"""An OIDC issuer on loopback: discovery, keys that a test replaces, and tokens that it signs."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

AUDIENCE = "the-service"


class OidcIssuer:
    """Serves until it is closed. `requests`: how many it got. `status`: of its answers."""

    def __init__(self) -> None:
        self.requests = 0
        self.status = 200
        self.keys: dict[str, Any] = {}
        self.extra: list[dict[str, Any]] = []
        self.named: str | None = None
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.requests += 1
                found = {"/.well-known/openid-configuration": issuer.configuration, "/keys": issuer.key_set}[self.path]
                body = json.dumps(found()).encode()
                self.send_response(issuer.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

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
