"""Sign a person in at an OIDC issuer, in their browser: the authorization code flow with PKCE.

See https://openid.net/specs/openid-connect-core-1_0.html (3.1) and RFC 7636.
"""

import base64
import hashlib
from secrets import token_urlsafe
from urllib.parse import quote, urlencode, urlsplit

import jwt

from gepa_service.auth.oidc import IssuerUnavailable, OidcIssuer, address_of, fetched
from gepa_service.auth.sessions import PendingSignIn


def begin(issuer: OidcIssuer, tenant: str | None, redirect: str) -> tuple[str, PendingSignIn]:
    """Return the address of the issuer's sign-in page, and what the browser keeps until it is redirected back. Blocks.

    `redirect`: the redirect URI that is registered at the issuer.

    Raises:
        IssuerUnavailable: the issuer's description cannot be read, or names no such page.
    """
    page = address_of(issuer.issuer, "authorization_endpoint")
    begun = PendingSignIn(issuer.issuer, tenant, state=token_urlsafe(), nonce=token_urlsafe(), verifier=token_urlsafe())
    challenge = base64.urlsafe_b64encode(hashlib.sha256(begun.verifier.encode()).digest()).decode().rstrip("=")
    asked = {
        "response_type": "code",
        "client_id": issuer.audience,
        "redirect_uri": redirect,
        "scope": "openid",
        "state": begun.state,
        "nonce": begun.nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    return f"{page}{'&' if urlsplit(page).query else '?'}{urlencode(asked)}", begun


def finish(issuer: OidcIssuer, begun: PendingSignIn, code: str, redirect: str) -> str:
    """Return the token that the issuer gives for the code; the caller still checks it. Blocks.

    Raises:
        IssuerUnavailable: the issuer gives no token for this sign-in; the text has the reason.
    """
    asked = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect,
        "client_id": issuer.audience,
        "code_verifier": begun.verifier,
    }
    own = None if issuer.secret is None else (quote(issuer.audience, ""), quote(issuer.secret, ""))  # RFC 6749, 2.3.1
    address = address_of(issuer.issuer, "token_endpoint")
    token = fetched(address, "POST", data=asked, auth=own).get("id_token")
    try:
        claims = jwt.decode(str(token), options={"verify_signature": False})
    except jwt.InvalidTokenError:
        raise IssuerUnavailable(f"{address} answers without an id_token") from None
    if (claims.get("iss"), claims.get("nonce")) != (issuer.issuer, begun.nonce):
        raise IssuerUnavailable(f"{address} answers with the token of another sign-in")
    return str(token)
