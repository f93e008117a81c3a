"""The secret of a webhook, and the signature of what is sent to it."""

import base64
import hashlib
import hmac

PREFIX = "whsec_"
SIGNATURE = "X-EvolveRPC-Signature"


def secret_of(key: bytes, tenant: str, webhook_id: str) -> str:
    """Return the secret of a webhook: derived from the key of the service, so that it is stored nowhere."""
    made = hmac.digest(key, f"webhook 1 {tenant} {webhook_id}".encode(), hashlib.sha256)
    return PREFIX + base64.urlsafe_b64encode(made).decode().rstrip("=")


def signature(secret: str, body: bytes, at: int) -> str:
    """Return the value of the header: the time of sending, and the HMAC-SHA256 of `TIME.BODY` in hex."""
    made = hmac.digest(secret.encode(), b"%d." % at + body, hashlib.sha256).hex()
    return f"t={at},v1={made}"
