"""`gepa-client call` makes one call, prints the answer, and tells by its exit status how it went."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gepa_client.conftest import Ran
from tests.gepa_client.words import Script

Serve = Callable[[Script], str]
Cli = Callable[..., Ran]
EVALUATE = {"candidate": {"rules": "red"}, "batch": [{"id": "1", "data": {"need": "red"}}]}


@pytest.mark.parametrize("way", ["text", "file", "stdin"])
def test_params_come_as_text_from_a_file_or_from_stdin(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path, way: str
) -> None:
    text = json.dumps(EVALUATE)
    (tmp_path / "params.json").write_text(text)
    params, stdin = {"text": (text, ""), "file": ("@params.json", ""), "stdin": ("-", text)}[way]
    ended = cli("call", serve(words), "evaluate", params, stdin=stdin)
    assert ended.status == 0, ended.stderr
    assert json.loads(ended.stdout)["results"][0]["score"] == 1.0
    assert len(ended.stdout.splitlines()) > 3


def test_an_error_of_the_server_ends_with_1_and_is_shown(serve: Serve, cli: Cli, words: Script) -> None:
    ended = cli("call", serve(words), "sing")
    assert ended.status == 1
    assert "MethodNotFound (-32601)" in ended.stderr
    assert '"method": "sing"' in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("params", ["{", "[1]", "@nowhere.json", "5"])
def test_params_that_cannot_be_used_end_with_2(cli: Cli, params: str) -> None:
    assert cli("call", "http://127.0.0.1:9", "discover", params).status == 2


def test_no_server_ends_with_2(cli: Cli) -> None:
    ended = cli("call", "http://127.0.0.1:9", "discover")
    assert ended.status == 2
    assert "cannot connect" in ended.stderr


def test_control_characters_of_an_answer_stay_json(serve: Serve, cli: Cli) -> None:
    ended = cli("call", serve(Script(seed={"rules": "a\u202e\x9b\x1b[31m"})), "discover")
    assert json.loads(ended.stdout)["program"]["seed_candidate"]["rules"] == "a\u202e\x9b\x1b[31m"
    assert not {"\u202e", "\x9b", "\x1b"} & set(ended.stdout)
