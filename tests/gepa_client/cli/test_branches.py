"""`evolverpc branches` lists a run's code from its record alone, and checks the best code out in a repository."""

import json
from pathlib import Path

import pytest

from tests.gepa_client.conftest import Cli
from tests.gepa_client.stored_code import StoredCode, git
from tests.gepa_client.stored_run import RUN_ID, Made, put

BEST = f"evolve/{RUN_ID}/3"


@pytest.fixture
def code(tmp_path: Path) -> StoredCode:
    """A run of four changes in the store where the commands look by themselves."""
    made = StoredCode(tmp_path)
    made.into(tmp_path / "runs" / "evolverpc.db")
    return made


def test_every_change_is_listed_with_its_start_and_its_outcome(cli: Cli, code: StoredCode) -> None:
    ended = cli("branches", "last")
    assert ended.status == 0, ended.stderr
    lines = [" ".join(line.split()) for line in ended.stdout.splitlines()]
    assert lines[0].startswith(f"{RUN_ID}: 4 changes of code, 2 kept, 1 dropped, 1 rejected; branches evolve/{RUN_ID}/")
    assert lines[3:7] == [
        "1 seed 0.5000 1 1 1 kept as 1 print it twice",
        "3 1 0.7500 1 1 1 kept as 2 best print it louder",
        "4 1 - 1 2 1 dropped be silent",
        "6 seed - - - - rejected (paths) delete the tests",
    ]
    assert lines[7].startswith("rejected at paths: tests/ may not change \\u001b[2J[red]x[/]")
    assert lines[7].endswith("(6)")
    assert lines[9] == f"seed main@{code.seed[:7]} 0.2500"
    printed = json.loads(cli("branches", "last", "--json").stdout)
    outcomes = {
        change["number"]: (change["outcome"], change["best"], change["parents"]) for change in printed["changes"]
    }
    assert outcomes == {
        1: ("kept", False, [None]),
        3: ("kept", True, [1]),
        4: ("dropped", False, [1]),
        6: ("rejected", False, [None]),
    }
    assert printed["changes"][3]["rejected"]["stage"] == "paths"


def test_a_diff_is_a_patch_that_git_applies(cli: Cli, code: StoredCode) -> None:
    both = cli("branches", "last", "--diff", "best", "--against-seed", "--repo", "user")
    assert both.status == 0, both.stderr
    git(code.user, "apply", given=both.stdout.encode())
    assert (code.user / "program.py").read_text() == git(code.server, "show", f"{BEST}:program.py")
    assert cli("branches", "last", "--diff", "6").stdout == "--- a/x\n+++ b/x\n"


def test_the_best_is_checked_out_without_its_server_and_there_is_a_way_back(cli: Cli, code: StoredCode) -> None:
    git(code.user, "switch", "--quiet", "--detach", "main")
    ended = cli("branches", "last", "--check-out", "--repo", "user")
    assert ended.status == 0, ended.stderr
    assert git(code.user, "rev-parse", "HEAD", BEST).split() == [code.commits[3]] * 2
    assert (code.user / "program.py").read_text() == git(code.server, "show", f"{BEST}:program.py")
    assert git(code.user, "for-each-ref", "--format=%(refname)", "refs/heads/").split() == [
        f"refs/heads/{BEST}",
        "refs/heads/main",
    ]
    assert f"back: git -C user switch --detach {code.seed}" in ended.stdout
    assert "texts" not in ended.stdout
    again = cli("branches", "last", "--check-out", "--repo", "user", "--json")
    assert json.loads(again.stdout)["back"] is None


LEAVES_A_MARK = "#!/bin/sh\ntouch $(git rev-parse --git-dir)/ran-$(basename $0)\ncat > /dev/null\n"
UNASKED = {".gitattributes": "* filter=own\n", ".husky/post-checkout": LEAVES_A_MARK, ".smudge": LEAVES_A_MARK}


@pytest.fixture
def unasked(tmp_path: Path) -> StoredCode:
    """The best change brings a hook and a filter that the user's configuration runs."""
    code = StoredCode(tmp_path, also=UNASKED | {".envrc": "", "Makefile": ""})
    code.into(tmp_path / "runs" / "evolverpc.db")
    git(code.user, "config", "core.hooksPath", ".husky")
    git(code.user, "config", "filter.own.smudge", "./.smudge")
    git(code.user, "config", "core.fsmonitor", "./.smudge")
    return code


def marks(code: StoredCode) -> list[str]:
    return sorted(path.name for path in (code.user / ".git").glob("ran-*"))


def test_checking_out_runs_nothing_that_the_change_brings(cli: Cli, unasked: StoredCode) -> None:
    ended = cli("branches", "last", "--check-out", "--yes", "--repo", "user")
    assert ended.status == 0, ended.stderr
    assert (unasked.user / "program.py").read_text() == git(unasked.server, "show", f"{BEST}:program.py")
    assert "git's filters were not run: .envrc, .gitattributes" in " ".join(ended.stdout.split())
    again = json.loads(cli("branches", "last", "--check-out", "--repo", "user", "--json").stdout)
    assert [path for path in UNASKED if path not in again["run_unasked"]] == []
    assert marks(unasked) == []
    git(unasked.user, "-c", "core.fsmonitor=", "switch", "--quiet", "main")
    git(unasked.user, "-c", "core.fsmonitor=", "switch", "--quiet", BEST)
    assert marks(unasked) == ["ran-.smudge", "ran-post-checkout"]  # git itself would have run them


def test_the_user_is_asked_before_files_are_checked_out_that_run_unasked(cli: Cli, unasked: StoredCode) -> None:
    declined = cli("branches", "last", "--check-out", "--repo", "user", stdin="n\n")
    assert declined.status == 1
    shown = declined.stdout
    assert ".husky/post-checkout: your git configuration names it (core.hookspath)" in shown
    assert ".smudge: your git configuration names it" in shown
    assert [name for name in (".envrc", ".gitattributes", "Makefile") if f"  {name}: " not in shown] == []
    assert "program.py" not in shown
    assert git(unasked.user, "symbolic-ref", "--short", "HEAD").strip() == "main"
    for_machines = cli("branches", "last", "--check-out", "--repo", "user", "--json")
    assert (for_machines.status, "then give --yes" in for_machines.stderr) == (2, True)
    assert marks(unasked) == []


def test_nothing_is_checked_out_over_changes_that_are_not_committed_or_a_branch_of_another_author(
    cli: Cli, code: StoredCode
) -> None:
    (code.user / "program.py").write_text("mine")
    ended = cli("branches", "last", "--check-out", "--repo", "user")
    assert ended.status == 2
    assert "has changes that are not committed: program.py" in ended.stderr
    assert (code.user / "program.py").read_text() == "mine"
    assert git(code.user, "branch", "--list", "evolve/*") == ""
    git(code.user, "checkout", "--quiet", "--force")
    git(code.user, "branch", BEST)
    ended = cli("branches", "last", "--check-out", "--repo", "user")
    assert ended.status == 2
    assert f"the branch {BEST} is there already, at another commit" in ended.stderr
    assert git(code.user, "rev-parse", BEST).strip() == code.seed


def test_deleting_asks_first_and_leaves_the_best_and_every_other_run(cli: Cli, code: StoredCode) -> None:
    git(code.server, "branch", "evolve/another-run/1")
    for number in (1, 3):
        git(code.server, "update-ref", f"refs/evolverpc/{RUN_ID}/{number}", code.seed)
    git(code.server, "worktree", "add", "--quiet", "../elsewhere", f"evolve/{RUN_ID}/4")
    declined = cli("branches", "last", "--delete", "--repo", "server", stdin="n\n")
    assert (declined.status, declined.stdout.splitlines()[-1].endswith("nothing was deleted")) == (1, True)
    assert f"to be deleted: evolve/{RUN_ID}/1\n" in declined.stdout
    ended = cli("branches", "last", "--delete", "--yes", "--repo", "server")
    assert ended.status == 0, ended.stderr
    assert f"1 branch deleted\nchecked out, so they stay: evolve/{RUN_ID}/4\n" in ended.stdout
    assert git(code.server, "for-each-ref", "--format=%(refname)").split() == [
        f"refs/evolverpc/{RUN_ID}/3",
        f"refs/heads/{BEST}",
        f"refs/heads/evolve/{RUN_ID}/4",
        "refs/heads/evolve/another-run/1",
        "refs/heads/main",
    ]


def test_arguments_that_cannot_be_used_are_an_error(cli: Cli, code: StoredCode) -> None:
    for arguments, expected in (
        (("--diff", "7"), "there is no change 7: give best, or one of 1, 3, 4, 6"),
        (("--diff", "1", "--delete"), "one at a time"),
        (("--check-out", "--repo", "runs"), "is in no git repository"),
        (("--delete", "--json", "--repo", "server"), "--json asks nothing"),
    ):
        ended = cli("branches", "last", *arguments)
        assert ended.status == 2
        assert expected in ended.stderr


def test_a_run_that_changed_no_code_is_reported_as_such(cli: Cli, tmp_path: Path) -> None:
    put(tmp_path / "runs" / "evolverpc.db", Made())
    assert "changed no code" in cli("branches", "last").stdout
    refused = cli("branches", "last", "--check-out")
    assert (refused.status, "changed no code" in refused.stderr) == (2, True)


def test_a_candidate_is_shown_with_the_change_of_code_that_made_it(cli: Cli, code: StoredCode) -> None:
    shown = cli("show", "last", "--candidate", "2").stdout
    for part in (
        f"code {BEST}@",
        "change of code 3: +1 -1 in 1 file",
        "why print it louder",
        "summary as asked: print it louder",
        "-    return text + text",
    ):
        assert part in shown
