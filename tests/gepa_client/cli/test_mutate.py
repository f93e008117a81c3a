"""`evolverpc mutate` has code changed once, shows the change, and runs some rows on both sides of it."""

import json
import signal
from pathlib import Path

import pytest

from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, git_branch
from protocol.errors import MutationRejected
from tests.gepa_client.cli.mutation_script import BRANCH, CHANGED, DIFF, SEED, Evolving
from tests.gepa_client.conftest import TIMEOUT_S, Cli, Serve, Start
from tests.gepa_client.example_records import NASTY
from tests.gepa_client.word_program import Script


@pytest.fixture
def evolving() -> Evolving:
    return Evolving()


def test_a_step_shows_its_diff_the_rows_on_both_sides_and_what_to_type_next(
    serve: Serve, cli: Cli, evolving: Evolving, tmp_path: Path
) -> None:
    url = serve(evolving.script)
    ended = cli("mutate", url, "answer yes", "--location", "program.py:2", "--output", "new.json")
    assert ended.status == 0, ended.stderr
    assert evolving.asked == {"kind": "change_request", "request": "answer yes", "location": "program.py:2"}
    assert f"main@1111111 of scripted behind {url}" in ended.stdout
    assert DIFF in ended.stdout
    assert f"{BRANCH}@2222222: +2 -1 in 1 file" in ended.stdout
    assert "summary  it answers yes now" in ended.stdout
    assert "$0.0123, 1,200 tokens in, 300 out" in ended.stdout
    assert "components added  tone" in ended.stdout
    assert "row 0 fails" in ended.stdout
    assert "row 0 works" in ended.stdout
    assert "score 0 -> 1, mean of 3 rows" in ended.stdout
    assert f"next: evolverpc mutate {url} 'ANOTHER CHANGE' --candidate new.json" in ended.stdout
    assert f"see it: git diff {SEED[:12]}..{BRANCH}" in ended.stdout
    assert json.loads((tmp_path / "new.json").read_text())[GIT_BRANCH] == git_branch(BRANCH, CHANGED)
    assert sorted({params["batch"][0]["id"] for params in evolving.script.calls("evaluate")}) == ["0", "3", "6"]


def test_a_patch_texts_and_another_candidate_are_read_from_files(serve: Serve, cli: Cli, tmp_path: Path) -> None:
    best = {"rules": "green", GIT_BRANCH: git_branch(BRANCH, CHANGED), ADDED_COMPONENTS: '{"tone": "kind"}'}
    (tmp_path / "best.json").write_text(json.dumps(best))
    (tmp_path / "x.patch").write_bytes(DIFF.replace("\n", "\r\n").encode())
    asked = {}
    for flag, name in (("--patch", "x.patch"), ("--texts", "best.json"), ("--merge", "best.json")):
        evolving = Evolving()
        ended = cli("mutate", serve(evolving.script), flag, name, "--limit", 0)
        assert ended.status == 0, ended.stderr
        asked[flag] = evolving.asked
        [params] = evolving.script.calls("apply_mutation")
        assert (params["candidate"] == best) == (flag == "--texts")
    assert asked["--patch"] == {"kind": "patch", "diff": DIFF.replace("\n", "\r\n")}
    assert asked["--texts"] == {"kind": "texts", "texts": {"tone": "kind", "rules": "green"}}
    assert asked["--merge"] == {"kind": "merge", "other": best}


def test_a_rejection_prints_its_stage_its_reason_and_what_to_do(serve: Serve, cli: Cli, evolving: Evolving) -> None:
    evolving.raises = MutationRejected(
        stage="check", reason=f"pytest ended with 1 {NASTY}", log_tail="E  assert 1 == 2", diff=DIFF,
        usage={"cost_usd": 0.5},
    )  # fmt: skip
    url = serve(evolving.script)
    ended = cli("mutate", url, "answer yes", "--output", "new.json")
    assert ended.status == 1
    assert "rejected at stage check: pytest ended with 1 \\u001b[2J[red]x[/]" in ended.stdout
    assert "E  assert 1 == 2" in ended.stdout
    assert "+print('yes')" in ended.stdout
    assert "nothing was changed" in ended.stdout
    assert "$0.5000" in ended.stdout
    assert "what to do: the server's --check-command fails on it" in ended.stdout
    printed = json.loads(cli("mutate", url, "answer yes", "--json").stdout)
    assert (printed["made"], printed["stage"], printed["log_tail"]) == (False, "check", "E  assert 1 == 2")


def test_ctrl_c_cancels_the_mutation_on_the_server(serve: Serve, start: Start, evolving: Evolving) -> None:
    evolving.may_finish.clear()
    process = start("mutate", serve(evolving.script), "answer yes")
    while "3 of 3 rows run" not in process.lines.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(TIMEOUT_S)
    assert process.returncode == 130
    assert "stopped by hand; the server was asked to cancel the mutation" in stderr
    assert len(evolving.script.calls("cancel")) == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "give one change: a change request, --patch, --texts, --merge"),
        (["x", "--patch", "p"], "a change request and --patch were given"),
        (["--patch", "nowhere"], "nowhere: no such file"),
        (["--merge", "plain.json"], "plain.json names no git_branch: give a whole candidate (as --output writes)"),
        (["--texts", "deep.json"], "deep.json: not a JSON object of texts: it is nested too deep"),
        (["x", "--output", "no/where.json"], "there is no such folder"),
        (["x", "--examples", "nothing"], "examples: 'nothing' is neither a file"),
        (["x", "--candidate", "short.json"], "not branch@<full commit id>"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_refused_before_anything_is_sent(
    serve: Serve, cli: Cli, tmp_path: Path, evolving: Evolving, arguments: list[str], expected: str
) -> None:
    (tmp_path / "plain.json").write_text('{"rules": "x"}')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "short.json").write_text('{"git_branch": "main@abc"}')
    ended = cli("mutate", serve(evolving.script), *arguments)
    assert ended.status == 2
    assert expected in ended.stderr
    assert evolving.script.calls("apply_mutation") == []


def test_for_a_server_that_changes_no_code_the_command_that_enables_it_is_printed(
    serve: Serve, cli: Cli, words: Script
) -> None:
    ended = cli("mutate", serve(words), "answer yes")
    assert ended.status == 2
    assert "start its server with --allow-mutations" in ended.stderr
