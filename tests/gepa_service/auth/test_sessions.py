"""The cookies of sessions: sealed by one key, for a time."""

from gepa_service.auth.sessions import LONGEST_TOKEN, PendingSignIn, Sessions, SignedIn

KEY, OTHER = b"k" * 32, b"o" * 32
WHO = SignedIn("grk_token", "acme")


def test_a_cookie_that_was_changed_or_sealed_elsewhere_is_not_opened() -> None:
    cookie = Sessions(KEY).seal(WHO)
    assert "token" not in cookie and cookie != Sessions(KEY).seal(WHO)
    changed = cookie[:40] + ("A" if cookie[40] != "A" else "B") + cookie[41:]
    for odd in (changed, Sessions(OTHER).seal(WHO), "", "x", "\ud800", "é" * 100, cookie[:-10]):
        assert Sessions(KEY).open(SignedIn, odd) is None, odd
    assert Sessions(KEY).open(PendingSignIn, cookie) is None


def test_a_session_ends_after_its_time() -> None:
    now = [1_000_000.0]
    sessions = Sessions(KEY, lambda: now[0])
    for content in (WHO, PendingSignIn("https://issuer", None, "state", "nonce", "verifier")):
        cookie = sessions.seal(content)
        now[0] += content.LIFETIME_S
        assert sessions.open(type(content), cookie) == content
        now[0] += 1
        assert sessions.open(type(content), cookie) is None


def test_the_longest_token_fits_into_a_cookie() -> None:
    assert len(Sessions(KEY).seal(SignedIn("x" * LONGEST_TOKEN, "t" * 64))) < 4_000
