"""Known secrets are replaced in text, JSON and streams."""

from evolverpc_common.redaction import Secrets, StreamRedactor, secrets_of


def test_the_longer_of_two_secrets_goes_as_a_whole_and_short_ones_are_words() -> None:
    secrets = Secrets(["password", "pass-1234", "pass-1234-5678", "short"])
    text = "pass-1234-5678 pass-1234 password short"
    assert secrets.written(text) == b'"[redacted] [redacted] password short"'


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
    key, text = "sk-secret-1234", b"a sk-secret-1234sk-secret-1234 sk-sk-secret-1234 sk-"
    for size in range(1, len(text)):
        redactor = StreamRedactor(key)
        passed = b"".join(redactor.feed(text[place : place + size]) for place in range(0, len(text), size))
        assert passed + redactor.rest() == b"a [redacted][redacted] sk-[redacted] sk-"


def test_a_key_too_short_to_be_a_secret_passes() -> None:
    assert StreamRedactor("x").feed(b"xyz") == b"xyz"
