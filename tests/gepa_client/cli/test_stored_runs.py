"""The commands that list, show, cancel, fork and export the runs of a store, as a user types them."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from gepa_client.cli.commands.runs import run_table
from gepa_client.journal.entries import EVENTS, SEARCH, Attempt, Claim, StoredRun
from gepa_client.journal.run_events import Event, ProposalBegun, ProposalEvaluated, ProposalMade, Rejected
from gepa_client.journal.store import Store, open_store
from gepa_client.run.export_import import export_run
from tests.gepa_client.cli.test_start_up import HEAVY, loaded
from tests.gepa_client.conftest import Cli
from tests.gepa_client.example_records import NASTY
from tests.gepa_client.stored_run import RUN_ID, Made, entry_of, put

STORE = Path("runs") / "evolverpc.db"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where the commands look by themselves."""
    return tmp_path / STORE


# --- runs ------------------------------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_with_score_calls_and_cost(cli: Cli, store: Path) -> None:
    put(store, Made(), Made(run_id="20260103-000000-aaaa-tickets", name="tickets", status="paused"))
    ended = cli("runs")
    assert ended.status == 0, ended.stderr
    header, newest, oldest, following = ended.stdout.splitlines()
    assert header.split() == ["run", "name", "status", "score", "iter", "calls", "cost", "started", "ended"]
    assert " ".join(newest.split()[:9]) == "20260103-000000-aaaa tickets paused 0.00 -> 1.00 4 30/40 $0.21"
    assert oldest.split()[:2] == [RUN_ID, "completed"]
    assert following == "next: evolverpc resume 20260103-000000-aaaa-tickets"


def test_runs_can_be_filtered_by_status_and_are_json_lines_for_machines(cli: Cli, store: Path) -> None:
    put(store, Made(), Made(run_id="other", status="failed", reason="why"))
    [line] = cli("runs", "--status", "failed", "--json").stdout.splitlines()
    run = json.loads(line)
    assert (run["id"], run["status"], run["reason"], run["driven"]) == ("other", "failed", "why", False)
    assert (run["seed_score"], run["best"]["score"]) == (0.0, 1.0)


def test_for_an_empty_store_the_next_command_is_printed_and_no_file_is_made(cli: Cli, tmp_path: Path) -> None:
    ended = cli("runs")
    assert ended.status == 0
    assert cli("runs", "--json").stdout == ""
    failed = cli("show", "last")
    assert failed.status == 2
    assert "no store at runs/evolverpc.db" in failed.stderr
    assert list(tmp_path.iterdir()) == []


def test_reading_a_store_loads_nothing_heavy(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(store, Made())
    monkeypatch.chdir(tmp_path)
    assert not loaded("show", "last") & {*HEAVY, "pymongo"}


def test_a_file_that_is_no_store_is_an_error_that_names_it(cli: Cli, store: Path) -> None:
    store.parent.mkdir()
    store.write_text("these are not the runs you are looking for, and no database either\n" * 20)
    ended = cli("runs")
    assert ended.status == 2
    assert "evolverpc.db" in ended.stderr


def test_a_running_run_without_a_heartbeat_is_marked_and_its_takeover_is_printed(cli: Cli, store: Path) -> None:
    put(store, Made(status="running", claim=Claim("another", 3)))
    printed = cli("runs").stdout
    assert f"{RUN_ID} gave no sign of life for" in printed
    assert f"evolverpc resume {RUN_ID} takes it over" in printed
    assert cli("show", "last").stdout.splitlines()[-1] == f"next: evolverpc resume {RUN_ID}"


def test_ids_and_scores_are_whole_in_a_terminal_of_80_columns() -> None:
    run_id = "20261129-142422-2645-a-long-name-of-a-run-that-ends-elsewhere"
    run = StoredRun(id=run_id, name=run_id[21:], config={"max_metric_calls": 360}, best={"score": 0.67}, counters={})
    console = Console(width=80, record=True)
    console.print(run_table([run], {run_id: 0.39}, 80))
    row = console.export_text().splitlines()[1]
    assert all(each in row for each in ("20261129-142422-2645", "0.39 -> 0.67", "-/360"))


def test_a_run_that_is_known_to_have_cost_nothing_shows_no_amount() -> None:
    run = StoredRun(id="r", config={}, best={"score": 1.0}, counters={"metric_calls": 9, "spent_usd": 0.0})
    console = Console(width=200, record=True)
    console.print(run_table([run], {"r": 0.0}, 200))
    assert "$" not in console.export_text()


# --- show ------------------------------------------------------------------------------------------------------------


def test_show_prints_the_facts_the_tree_the_outcomes_and_the_changes(cli: Cli, store: Path) -> None:
    put(store, Made(broken=frozenset({(1, 1)}), config={"val_fraction": 0.0, "skip_perfect_score": False}))
    printed = cli("show", "last").stdout
    for part in (
        f"{RUN_ID} completed",
        "validation score 0 -> 1, candidate 4",
        "metric calls     24 of 40, 12.5 s",
        "rows             3 train, 4 val",
        "program          tickets, version 2, behind scripted 0 (python)",
        "seed 3",
        "val_fraction 0.0",
        "skip_perfect_score false",
        "4 1.0000 front best merge of 2 and 3 at 24",
        "the best candidate (4) against the seed",
        "+red\n+green\n+blue",
        f"next: evolverpc watch {RUN_ID}",
    ):
        assert part in printed
    rows = [line.split() for line in printed.splitlines()]
    assert ["evaluate", "program_error", "1", "1", "0.1", "$0.0100"] in rows
    assert ["evaluate", "ok", "19", "19", "1.9", "$0.1900"] in rows
    assert ["completion", "ok", "4", "4", "0.4", "$0.0080"] in rows


def test_show_prints_the_text_of_the_last_proposal_that_was_rejected(cli: Cli, store: Path) -> None:
    put(store, Made())
    made: list[Event] = [
        ProposalBegun(iteration=9, proposal=90, parent=4, components=["rules"], rows=["1"], results=[1], score=1.0),
        ProposalMade(iteration=9, proposal=90, texts={"rules": "purple"}),
        ProposalEvaluated(iteration=9, proposal=90, results=[2], score=0.5, candidate="abc"),
        Rejected(iteration=9, proposal=90, parents=[4], old_score=1.0, new_score=0.5, reason="not better"),
    ]
    with closing(open_store(str(store))) as opened:
        first = opened.parts(RUN_ID)[EVENTS]
        rows = [
            entry_of(EVENTS, first + at, event.event, "", event.model_dump(mode="json", exclude={"event"}))
            for at, event in enumerate(made)
        ]
        opened.write(RUN_ID, "", rows)
    printed = cli("show", "last").stdout
    assert (
        "the last rejected proposal (iteration 9, against candidate 4): not better on its minibatch: 1 -> 0.5"
        in printed
    )
    assert "+purple" in printed


def test_missing_prices_and_attempts_without_an_end_are_reported_and_not_counted_as_zero(cli: Cli, store: Path) -> None:
    made = Made(run_id="x")
    opened = open_store(str(store))
    more = [
        Attempt(SEARCH, 90, 1, "evaluate", "u", None, "lost"),
        Attempt(SEARCH, 91, 1, "evaluate", "u", None),
        Attempt(SEARCH, 92, 1, "score", "u", None, "ok", usage={"calls": 1}, examples=20, unpriced=20),
    ]
    opened.create(made.run(), [*made.rows(), *more])
    opened.close()
    printed = cli("show", "x").stdout
    assert "20 results came without a price" in printed
    assert "2 attempts without a response" in printed
    shown = json.loads(cli("show", "x", "--json").stdout)
    assert (shown["spent_usd"], shown["unpriced"], shown["lost"]) == (pytest.approx(0.208), 20, 2)
    assert "the run has no test rows" in shown["summary"]["certificate"][0]["text"]


def test_a_candidate_is_shown_with_its_texts_diffs_and_the_rows_it_moved(cli: Cli, store: Path) -> None:
    put(store, Made(broken=frozenset({(4, 0)}), held=True))
    printed = cli("show", RUN_ID[:12], "--candidate", "4").stdout
    assert "candidate 4, from 2 and 3: score 0.7500" in printed
    assert "against candidate 2 (score 0.7500)\nrules\n@@ -1,2 +1,3 @@\n red\n green\n+blue\n" in printed
    assert "rows against candidate 2: 1 row is better, 1 is worse and 2 the same" in printed
    assert ["0", "0", "1", "0"] in [line.split() for line in printed.splitlines()]
    failed = cli("show", RUN_ID, "--candidate", "5")
    assert failed.status == 2
    assert "has no candidate 5: it has 0 to 4" in failed.stderr


def test_text_from_elsewhere_cannot_command_the_terminal(cli: Cli, store: Path) -> None:
    texts = ("", NASTY, f"{NASTY}\nmore", "blue", NASTY * 2)
    put(store, Made(name=NASTY, reason=NASTY, status="paused", texts=texts))
    for arguments in (["runs"], ["show", "last"], ["show", "last", "--candidate", "2"], ["show", "last", "--json"]):
        ended = cli(*arguments)
        assert ended.status == 0, ended.stderr
        assert not {"\x1b", "\u202e"} & set(ended.stdout)
    assert "[red]x[/]" in cli("show", "last").stdout
    assert json.loads(cli("show", "last", "--json").stdout)["candidates"][2]["texts"]["rules"] == texts[2]


# --- cancel ----------------------------------------------------------------------------------------------------------


def test_a_run_whose_driver_is_gone_is_cancelled_after_its_lease(cli: Cli, store: Path) -> None:
    put(store, Made(status="running", claim=Claim("dead", 3), config={"lease_s": 0.5}))
    ended = cli("cancel", RUN_ID, "--json")
    assert ended.status == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "run": RUN_ID, "status": "cancelled", "reason": "cancelled by hand", "stopped": True,
    }  # fmt: skip
    [run] = cli("runs", "--json").events
    assert (run["status"], run["driven"]) == ("cancelled", False)
    assert cli("cancel", RUN_ID).status == 0


# --- fork ------------------------------------------------------------------------------------------------------------


def test_a_fork_begins_with_the_entries_below_n_and_the_settings_changed(cli: Cli, store: Path) -> None:
    model = {"reflection_lm": "openai/x", "reflection_lm_kwargs": {"api_key": "(not recorded)", "top_p": 1}}
    put(store, Made(name="first", config={"output": "/somewhere/runs/first", "store": "elsewhere.db", **model}))
    ended = cli("fork", RUN_ID, "--at", 11, "--seed", 9, "--name", "second try", "--json")
    assert ended.status == 0, ended.stderr
    new = json.loads(ended.stdout)
    assert new["id"].endswith("-second-try")
    assert (new["status"], new["identity"], new["entries"]) == ("pending", None, 11)
    assert new["parent"] == {"run": RUN_ID, "at": 11}
    assert (new["config"]["seed"], new["config"]["max_metric_calls"]) == (9, 40)
    assert {name: new["config"][name] for name in ("output", *model)} == {"output": None, **model}
    opened = open_store(str(store))
    assert opened.entries(new["id"], SEARCH) == opened.entries(RUN_ID, SEARCH, 0, 11)
    assert opened.parts(new["id"]) == {SEARCH: 11}
    assert opened.spending(new["id"]) == []
    assert opened.candidates(new["id"]) == []
    assert opened.run(RUN_ID).name == "first"
    opened.close()
    assert f"{RUN_ID} at 11" in cli("show", new["id"]).stdout


def test_a_fork_beyond_the_journal_or_with_settings_that_cannot_be_is_refused(cli: Cli, store: Path) -> None:
    put(store, Made())
    beyond = cli("fork", RUN_ID, "--at", 25)
    assert beyond.status == 2
    assert "ends at 24: give 0 to 24" in beyond.stderr
    wrong = cli("fork", RUN_ID, "--at", 2, "--failure-stop", 7)
    assert wrong.status == 2
    assert "`failure_stop`" in wrong.stderr
    assert len(cli("runs", "--json").events) == 1


# --- export ----------------------------------------------------------------------------------------------------------


def test_an_export_goes_to_stdout_or_a_new_file_and_never_over_another(cli: Cli, store: Path, tmp_path: Path) -> None:
    put(store, Made(texts=("", "\x1b[31m", "\U000e0041", "blue", "x")))
    printed = cli("export", "last", "--output", "-")
    assert printed.status == 0, printed.stderr
    assert not {"\x1b", "\U000e0041"} & set(printed.stdout)
    answer = json.loads(cli("export", "last", "--output", "mine.json", "--json").stdout)
    assert answer["file"] == "mine.json"
    assert json.loads((tmp_path / "mine.json").read_text()) == json.loads(printed.stdout)
    assert (tmp_path / "mine.json").stat().st_mode & 0o777 == 0o600
    over = cli("export", "last", "--output", "mine.json")
    assert over.status == 2
    assert "mine.json is there already" in over.stderr
    nowhere = cli("export", "last", "--output", "no/such/folder.json")
    assert nowhere.status == 2
    assert "cannot be written" in nowhere.stderr


def test_an_export_that_is_stopped_leaves_no_file(cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, Made())

    def stopped(kept: Store, run_id: str) -> Iterator[str]:
        yield next(export_run(kept, run_id))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("gepa_client.cli.commands.export_and_import.export_run", stopped)
        assert cli("export", "last", "--output", "mine.json").status == 130
    assert cli("export", "last", "--output", "mine.json").status == 0, "no part of a file is in its way"
