"""`evolverpc call` makes one call, prints the answer, and returns an exit status for each outcome."""

import json
from pathlib import Path

import pytest

from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.word_program import Script

UNREACHABLE = "http://127.0.0.1:9"
EVALUATE = {"candidate": {"rules": "red"}, "batch": [{"id": "1", "data": {"need": "red"}}]}


def test_params_come_as_text_from_a_file_or_from_stdin(serve: Serve, cli: Cli, words: Script, tmp_path: Path) -> None:
    text, url = json.dumps(EVALUATE), serve(words)
    (tmp_path / "params.json").write_text(text)
    for params, stdin in ((text, ""), ("@params.json", ""), ("-", text)):
        ended = cli("call", url, "evaluate", params, stdin=stdin)
        assert ended.status == 0, ended.stderr
        assert json.loads(ended.stdout)["results"][0]["score"] == 1.0


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


def test_params_that_cannot_be_used_and_no_server_end_with_2(cli: Cli) -> None:
    for params in ("{", "[1]", "@nowhere.json"):
        refused = cli("call", UNREACHABLE, "discover", params)
        assert (refused.status, "params" in refused.stderr) == (2, True)
    ended = cli("conformance", UNREACHABLE)
    assert (ended.status, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: cannot connect to")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["127.0.0.1:18000"], "did you mean http://127.0.0.1:18000?"),
        (["program.py"], "but a file: start a server"),
        (["http://example.org"], "use https, or `allow_insecure`"),
        ([UNREACHABLE, "--token-file", "nope"], "the token file nope: no such file"),
    ],
)
def test_a_wrong_argument_is_named_on_one_line(cli: Cli, arguments: list[str], expected: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("seed_candidate = {}\n")
    url, *more = arguments
    ended = cli("call", url, "discover", *more)
    assert ended.status == 2
    [line] = ended.stderr.splitlines()
    assert expected in line
