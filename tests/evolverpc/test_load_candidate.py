"""Candidates in files: the texts of a run's best one, from its file or its folder, and texts that were saved."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import evolverpc
from evolverpc import CandidateError, load_candidate, save_candidate

TEXTS = st.text(st.characters(exclude_categories=())).filter(
    lambda text: (
        text == text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    )  # no pair as two halves
)
OF_CODE = {"git_branch", "added_components"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "best_candidate.json").write_text(json.dumps({"prompt": "Answer.", "style": ""}), "utf-8-sig")
    return tmp_path


def test_a_candidate_is_read_from_its_file_and_from_the_folder_of_its_run(folder: Path) -> None:
    assert load_candidate(folder / "best_candidate.json") == {"prompt": "Answer.", "style": ""}
    assert load_candidate(str(folder), ["style", "prompt"]) == {"prompt": "Answer.", "style": ""}


def test_texts_that_code_changes_added_are_included_and_the_commit_is_not(tmp_path: Path) -> None:
    of_code = {"git_branch": f"evolve/r/1@{'a' * 40}", "added_components": json.dumps({"extra": "new", "prompt": "o"})}
    (tmp_path / "best_candidate.json").write_text(json.dumps({"prompt": "p", **of_code}))
    assert load_candidate(tmp_path, {"prompt": "", "extra": ""}) == {"prompt": "p", "extra": "new"}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(TEXTS.filter(lambda name: name not in OF_CODE), TEXTS))
@example({"__proto__": "\ud800\0\ufeff\u2028\r\n"})
def test_every_text_survives_being_saved_and_loaded(candidate: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "texts.json")
        save_candidate(file, candidate)
        assert load_candidate(file) == candidate
        assert [path.name for path in Path(folder).iterdir()] == ["texts.json"]


def test_missing_and_additional_components_are_named(folder: Path) -> None:
    with pytest.raises(CandidateError, match="the candidate lacks tone and has style besides"):
        load_candidate(folder, {"prompt": "", "tone": ""})
    with pytest.raises(CandidateError, match=r"program.load\(FILE\)"):
        load_candidate(folder, SimpleNamespace(named_predictors=list))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("\udcff", "not JSON"),
        ('{"prompt": 3}', "not a candidate: `prompt` is int, not a text"),
        (
            '{"candidates": [{"prompt": "p"}], "best_idx": 0}',
            r"is the whole result of a run: give .*best_candidate\.json",
        ),
    ],
)
def test_a_file_that_is_no_candidate_is_refused(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    file.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(CandidateError, match=message):
        load_candidate(file)


def test_what_is_no_path_is_answered_with_the_run_that_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs/2026-run").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CandidateError, match=r'^2026-run: .*did you mean runs/2026-run\?; give "last", or the folder'):
        load_candidate("2026-run")


def test_last_is_the_newest_run_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CandidateError, match=r"^last: no run in .*/runs has a best_candidate\.json"):
        load_candidate("last")
    for number, name in enumerate(("newer", "older", "named")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        file = tmp_path / "runs" / name / "best_candidate.json"
        save_candidate(file, {"prompt": name})
        os.utime(file, (1000 - number, 1000 - number))
    (tmp_path / "runs" / "empty").mkdir()
    assert load_candidate("last") == {"prompt": "newer"}
    save_candidate(tmp_path / "last", {"prompt": "of this name"})
    assert load_candidate("last") == {"prompt": "of this name"}


def test_one_file_of_the_package_loads_results_alone_and_names_what_optimize_needs(folder: Path) -> None:
    (folder / "evolverpc.py").write_bytes(Path(evolverpc.__file__).read_bytes())
    code = "import evolverpc; print(evolverpc.load_candidate('.')['prompt']); evolverpc.optimize"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=folder, capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == "Answer."
    assert "ModuleNotFoundError: evolverpc.optimize needs its packages (" in done.stderr
    assert "run pip install '.[server,client]' in the folder of evolverpc" in done.stderr


SEED = {"prompt": "Answer briefly.", "style": ""}


def beside(folder: Path, **result: object) -> None:
    (folder / "result.json").write_text(json.dumps(result))


def test_a_seed_that_differs_from_the_runs_is_warned_of_by_component(folder: Path) -> None:
    beside(folder, candidates=[SEED, {"prompt": "Answer.", "style": ""}], program={"version": None})
    load_candidate(folder, SEED)
    load_candidate(folder, ["prompt", "style"])
    with pytest.warns(UserWarning, match="started from other texts of prompt than the program's seed has") as warned:
        assert load_candidate(folder, {**SEED, "prompt": "Explain."}) == {"prompt": "Answer.", "style": ""}
    assert warned[0].filename == __file__


def test_a_candidate_of_another_version_of_a_program_is_refused(folder: Path) -> None:
    program = ModuleType("program")
    vars(program).update(seed_candidate=lambda: SEED, version=0, __version__=1)
    assert load_candidate(folder, program) == {"prompt": "Answer.", "style": ""}
    expected = vars(program)
    beside(folder, candidates=[SEED], program={"name": "program", "version": "0"})
    assert load_candidate(folder, expected) == {"prompt": "Answer.", "style": ""}
    beside(folder, candidates=[SEED], program={"name": "program", "version": "1"})
    with pytest.raises(CandidateError, match='was made for the program\'s version "1", not "0": it is of another'):
        load_candidate(folder, expected)
    vars(program).update(seed_candidate={"prompt": ""}, version=None, __version__=2)
    with pytest.raises(CandidateError, match='has style besides and was made for the program\'s version "1"'):
        load_candidate(folder, expected)
