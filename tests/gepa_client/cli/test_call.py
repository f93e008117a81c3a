"""`gepa-client call` makes one call, prints the answer, and returns an exit status for each outcome."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import UnknownCandidate
from tests.gepa_client.conftest import Ran
from tests.gepa_client.word_program import Script

Serve = Callable[[Script], str]
Cli = Callable[..., Ran]
UNREACHABLE = "http://127.0.0.1:9"
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


def test_partial_results_of_a_pending_call_are_printed(serve: Serve, cli: Cli) -> None:
    partial = [{"index": 1, "result": {"status": "ok", "score": 1.0, "output": "x", "seconds": 0.1}}]
    pending = {"call_id": "c", "progress": {"done": 1, "total": 2}, "results": partial}
    server = Script(replies={"get_result": lambda params: {"pending": pending} if params["partial"] else {}})
    ended = cli("call", serve(server), "get_result", '{"call_id": "c", "partial": true}')
    assert (ended.status, json.loads(ended.stdout)) == (0, {"pending": pending}), ended.stderr


def test_an_error_of_the_server_ends_with_1_and_is_shown(serve: Serve, cli: Cli, words: Script) -> None:
    ended = cli("call", serve(words), "sing")
    assert ended.status == 1
    assert "MethodNotFound (-32601)" in ended.stderr
    assert '"method": "sing"' in ended.stderr
    assert "the server has no method 'sing'; it has discover, evaluate, make_reflective_dataset" in ended.stderr
    assert "apply_mutation" not in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("params", ["{", "[1]", "@nowhere.json", "5"])
def test_params_that_cannot_be_used_end_with_2(cli: Cli, params: str) -> None:
    assert cli("call", "http://127.0.0.1:9", "discover", params).status == 2


def test_no_server_ends_with_2(cli: Cli) -> None:
    ended = cli("call", "http://127.0.0.1:9", "discover")
    assert ended.status == 2
    assert "cannot connect to http://127.0.0.1:9: connection refused" in ended.stderr


def test_data_of_an_error_is_printed_with_it(serve: Serve, cli: Cli) -> None:
    def unknown(_: dict[str, Any]) -> Any:
        raise UnknownCandidate(missing=["prompt"], unknown=["promt"])

    ended = cli("call", serve(Script(replies={"evaluate": unknown})), "evaluate", json.dumps(EVALUATE))
    assert "UnknownCandidate (-32022): Unknown candidate (missing: prompt; unknown: promt)" in ended.stderr


def test_an_error_for_a_missing_or_wrong_token_names_the_source_of_the_token(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    (tmp_path / "old").write_text("old")
    ended = cli("call", serve(words), "discover", "--token-file", "old")
    assert "the server refused the token from old" in ended.stderr


@pytest.mark.parametrize("token_file", ["old", None])
def test_conformance_of_an_unreachable_server_is_inconclusive(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path, token_file: str | None
) -> None:
    (tmp_path / "old").write_text("old")
    given = ("conformance", serve(words), "--token-file", token_file) if token_file else ("conformance", UNREACHABLE)
    ended = cli(*given)
    assert ended.status == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("error: the server refused" if token_file else "error: cannot connect to")


def test_control_characters_of_an_answer_stay_json(serve: Serve, cli: Cli) -> None:
    ended = cli("call", serve(Script(seed={"rules": "a\u202e\x9b\x1b[31m"})), "discover")
    assert json.loads(ended.stdout)["program"]["seed_candidate"]["rules"] == "a\u202e\x9b\x1b[31m"
    assert not {"\u202e", "\x9b", "\x1b"} & set(ended.stdout)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["127.0.0.1:18000"],
            "'127.0.0.1:18000' is not an http or https address; did you mean http://127.0.0.1:18000?",
        ),
        (["program.py"], "'program.py' is not an http or https address, but a file: start a server of the"),
        (["18000"], "'18000' is not an http or https address; did you mean http://127.0.0.1:18000?"),
        (
            ["http://127.0.0.1:180000"],
            "'http://127.0.0.1:180000' has no usable port: give the one that the server prints",
        ),
        (["http://example.org"], "use https, or --allow-insecure"),
        ([UNREACHABLE, "--token-file", "program.py"], "holds no token, which is one line of printable ASCII"),
        ([UNREACHABLE, "--token-file", "nope"], "the token file nope: no such file"),
        ([UNREACHABLE, "@nope.json"], "the params cannot be read: nope.json: no such file"),
    ],
)
def test_a_wrong_argument_is_named_on_one_line(cli: Cli, arguments: list[str], expected: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("seed_candidate = {}\nversion = ''\n")
    url, *more = arguments
    ended = cli("call", url, "discover", *more)
    assert ended.status == 2
    [line] = ended.stderr.splitlines()
    assert expected in line
