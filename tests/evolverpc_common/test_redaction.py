"""Known secrets are replaced in text, JSON and streams."""

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest

from evolverpc_common.redaction import Secrets, StreamRedactor, secrets_of


def test_the_longer_of_two_secrets_goes_as_a_whole_and_short_ones_are_words() -> None:
    secrets = Secrets(["password", "pass-1234", "pass-1234-5678", "short"])
    text = "pass-1234-5678 pass-1234 password short"
    assert secrets.written(text) == b'"[redacted] [redacted] password short"'
    assert secrets.written({"a": "pass-1234", "b": "pass-1234"}, {"a"}) == b'{"a":"pass-1234","b":"[redacted]"}'
    assert Secrets(["sixsix"], declared=True).redact_text("a sixsix") == "a [redacted]"


SECRET = 'sk-Ab/c+d&e"f\\g<é> xyz\n12345'


@pytest.mark.parametrize(
    "held",
    [
        json.dumps(json.dumps(json.dumps({"a": SECRET}))),
        json.dumps(SECRET).replace("/", "\\/").replace("00e9", "00E9").replace("<", "\\u003c"),
        repr({"a": SECRET}),
        repr(SECRET.encode()),
        quote(SECRET).replace("%2B", "%2b"),
        quote_plus(SECRET),
        html.escape(SECRET),
        SECRET.encode().hex(),
        base64.b64encode(b"user:" + SECRET.encode()).decode(),
    ],
)
def test_a_secret_is_found_as_other_formats_hold_it(held: str) -> None:
    written = Secrets([SECRET]).written({"x": held}).decode()
    assert "[redacted]" in written
    assert "12345" not in written


def test_a_secret_is_found_after_many_backslashes_soon() -> None:
    text = "a" + "\\" * 300_000
    assert Secrets(["a\\\\b-c-dd\\e"]).redact_text(text) == text


def test_secrets_within_one_are_secrets() -> None:
    account = json.dumps({"type": "service_account", "private_key": "-----BEGIN-----\nMIIE0123abcdef\n"})
    secrets = Secrets(["postgres://user:Sup3r%20SecretPw@host/db", account])
    assert secrets.redact_text("password=Sup3r SecretPw") == "password=[redacted]"
    assert secrets.redact_text("MIIE0123abcdef of a service_account") == "[redacted] of a service_account"


def test_secrets_are_found_by_the_names_of_variables() -> None:
    environment = {
        "OPENAI_API_KEY": "a" * 9,
        "GEPA_TOKEN": "b" * 9,
        "db_password": "c" * 9,
        "AWS_SECRET": "d" * 9,
        "KEYBOARD": "e" * 9,
        "TOKENIZERS_PARALLELISM": "f" * 9,
    }
    assert {value[0] for value in secrets_of(environment)} == {"a", "b", "c", "d"}


def test_a_key_is_replaced_wherever_a_stream_is_cut() -> None:
    key, text = "sk-secret-1234", b"a sk-secret-1234sk-secret-1234-5 sk-sk-secret-1234 sk-secret-1234"
    for size in range(1, len(text)):
        redactor = StreamRedactor(key, f"{key}-5", "1234sk-x")
        passed = b"".join(redactor.feed(text[place : place + size]) for place in range(0, len(text), size))
        assert passed + redactor.rest() == b"a [redacted][redacted] sk-[redacted] [redacted]"
