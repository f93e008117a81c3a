"""`evolverpc mutate` has code changed once, shows the change, and runs some rows on both sides of it."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, commit_of, git_branch
from protocol.errors import MutationRejected
from tests.gepa_client.code_server import CODE, DIFF, SEED, CodeServer
from tests.gepa_client.conftest import TIMEOUT_S, Cli, Serve, Start
from tests.gepa_client.example_records import NASTY
from tests.gepa_client.scripted_server import failed
from tests.gepa_client.word_program import Script


def test_a_step_shows_its_diff_the_rows_on_both_sides_and_what_to_type_next(
    cli: Cli, code_server: CodeServer, tmp_path: Path
) -> None:
    url = code_server.url
    ended = cli("mutate", url, "learn pink text tone", "--location", "program.py:2", "--output", "new.json")
    assert ended.status == 0, ended.stderr
    [asked] = code_server.called("apply_mutation")
    assert asked["mutation"] == {
        "kind": "change_request", "request": "learn pink text tone", "location": "program.py:2",
    }  # fmt: skip
    branch = f"evolve/{asked['name']['run']}/{asked['name']['number']}"
    candidate = json.loads((tmp_path / "new.json").read_text())
    assert git_branch(branch, commit_of(candidate)) == candidate[GIT_BRANCH]
    for part in (
        f"main@{SEED[:7]} of scripted behind {url}",
        DIFF,
        f"{branch}@{commit_of(candidate)[:7]}: +2 -1 in 1 file",
        "summary  done",
        "$0.2500",
        "components added  tone",
        "score 0.5853 -> 0.753, mean of 3 rows",
        f"next: evolverpc mutate {url} 'ANOTHER CHANGE' --candidate new.json",
        f"see it: git diff {SEED[:12]}..{branch}",
    ):
        assert part in ended.stdout
    assert '3 0.25 0.753 {"n": 3} [3, false] [3, true]' in " ".join(ended.stdout.split())
    assert sorted({params["batch"][0]["id"] for params in code_server.called("evaluate")}) == ["0", "3", "6"]


def test_a_patch_texts_and_another_candidate_are_read_from_files(
    cli: Cli, code_server: CodeServer, tmp_path: Path
) -> None:
    code_server.repository["2" * 40] = CODE
    best = {"rules": "green", GIT_BRANCH: git_branch("main", "2" * 40), ADDED_COMPONENTS: '{"tone": "k", "rules": ""}'}
    (tmp_path / "best.json").write_text(json.dumps(best))
    (tmp_path / "x.patch").write_bytes(DIFF.replace("\n", "\r\n").encode())
    for flag, name, mutation in (
        ("--patch", "x.patch", {"kind": "patch", "diff": DIFF.replace("\n", "\r\n")}),
        ("--texts", "best.json", {"kind": "texts", "texts": {"tone": "k", "rules": "green"}}),
        ("--merge", "best.json", {"kind": "merge", "other": best}),
    ):
        ended = cli("mutate", code_server.url, flag, name, "--limit", 0)
        assert ended.status == 0, ended.stderr
        asked = code_server.called("apply_mutation")[-1]
        assert asked["mutation"] == mutation
        assert (asked["candidate"] == best) == (flag == "--texts")
    code_server.evaluate_one = lambda *_: failed()
    made = json.loads(cli("mutate", code_server.url, "learn pink", "--json").stdout)
    assert (made["score_before"], made["score_after"]) == (0, 0), "a failure of the program scores 0"


def test_a_rejection_prints_its_stage_its_reason_and_what_to_do(cli: Cli, code_server: CodeServer) -> None:
    def rejects(_: object) -> None:
        raise MutationRejected(
            stage="check", reason=f"pytest ended with 1 {NASTY}", log_tail="E  assert 1 == 2", diff=DIFF,
            usage={"cost_usd": 0.5, "input_tokens": 1200, "output_tokens": 300},
        )  # fmt: skip

    code_server.replies["apply_mutation"] = rejects
    ended = cli("mutate", code_server.url, "answer yes", "--output", "new.json")
    assert ended.status == 1
    assert "rejected at stage check: pytest ended with 1 \\u001b[2J[red]x[/]" in ended.stdout
    assert "E  assert 1 == 2" in ended.stdout
    assert "+newer" in ended.stdout
    assert "nothing was changed" in ended.stdout
    assert "$0.5000, 1,200 tokens in, 300 out" in ended.stdout
    assert "what to do: the server's --check-command fails on it" in ended.stdout
    printed = json.loads(cli("mutate", code_server.url, "answer yes", "--json").stdout)
    assert (printed["made"], printed["stage"], printed["log_tail"]) == (False, "check", "E  assert 1 == 2")


def test_ctrl_c_cancels_the_mutation_on_the_server(start: Start, code_server: CodeServer) -> None:
    code_server.replies["apply_mutation"] = lambda _: asyncio.sleep(TIMEOUT_S)
    process = start("mutate", code_server.url, "answer yes")
    while "3 of 3 rows run" not in process.lines.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(TIMEOUT_S)
    assert process.returncode == 130
    assert "stopped by hand; the server was asked to cancel the mutation" in stderr
    assert len(code_server.cancelled) == 1


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
    cli: Cli, tmp_path: Path, code_server: CodeServer, arguments: list[str], expected: str
) -> None:
    (tmp_path / "plain.json").write_text('{"rules": "x"}')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "short.json").write_text('{"git_branch": "main@abc"}')
    ended = cli("mutate", code_server.url, *arguments)
    assert ended.status == 2
    assert expected in ended.stderr
    assert code_server.called("apply_mutation") == []


def test_for_a_server_that_changes_no_code_the_command_that_enables_it_is_printed(
    serve: Serve, cli: Cli, words: Script
) -> None:
    ended = cli("mutate", serve(words), "answer yes")
    assert ended.status == 2
    assert "start its server with --allow-mutations" in ended.stderr
