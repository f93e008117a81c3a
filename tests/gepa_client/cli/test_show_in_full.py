"""`show` on a terminal is short; `--full` cuts nothing."""

from collections.abc import Callable
from pathlib import Path

from tests.gepa_client.conftest import Ran
from tests.gepa_client.stored_run import Made, put

Cli = Callable[..., Ran]

LONG = "red " * 300
IDENTITY = {
    "gepa": "0.1.4",
    "settings": {"seed": 3, "failure_score": 0.0},
    "program": {"version": "1"},
    "seed_candidate": "4de31b4f2a328339f8a8dda93e6f4fa5",
    "data": {"train": "e6400c2c7196acd867c750763f64a437"},
}


def test_long_lines_and_values_are_cut_unless_in_full(cli: Cli, tmp_path: Path) -> None:
    texts = ("", "red", f"red\n{LONG}green", "blue", f"red\ngreen\n{LONG}blue")
    template = f"<curr_param> <side_info> {LONG}"
    put(
        tmp_path / "runs" / "evolverpc.db",
        Made(texts=texts, identity=IDENTITY, config={"reflection_prompt_template": template, "failure_stop": None}),
    )
    short = cli("show", "last").stdout
    assert max(map(len, short.splitlines())) <= 200
    assert "+red red" in short
    assert "…" in short
    assert "identity     gepa 0.1.4, program.version 1, seed_candidate 4de31b4f, data.train e6400c2c\n" in short
    assert "failure_stop" not in short
    full = cli("show", "last", "--full").stdout
    assert f"+{LONG}blue" in full
    assert template in full.replace("\n", " ")
    assert "data.train e6400c2c7196acd867c750763f64a437" in full
    of_one = cli("show", "last", "--candidate", "4").stdout
    assert max(len(line) for line in of_one.splitlines() if line.startswith("+")) == 200
