"""Settings: every option of GEPA's reachable under its own name, and every mistake named with its place."""

import inspect
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from gepa.api import optimize

from evolverpc_common.settings.sources import SettingsError
from gepa_client.journal.entries import StoredRun
from gepa_client.run.fingerprint import identity_settings
from gepa_client.run.strategies import PASSED
from gepa_client.settings import loading
from gepa_client.settings.loading import from_record, load
from gepa_client.settings.run_config import ENDINGS, IDENTITY_SETTINGS, REPLACED, SETTINGS, RunConfig
from gepa_client.settings.run_settings import BudgetSettings, OutputSettings, SandboxSettings, TrackingSettings
from gepa_client.settings.shell_arguments import flag_arguments, flags_to_continue

URL = "http://127.0.0.1:1"

MAY_CHANGE = frozenset(
    {
        # who does the work: the program is the same everywhere
        *("url", "fleet", "token_file", "allow_insecure", "allow_mixed_programs"),
        *("concurrency", "example_timeout_s"),
        "score_with",
        *SandboxSettings.model_fields,
        # where the rows are; that they are the same rows is seen in the rows themselves
        *("trainset", "valset", "testset", "val_fraction", "test_fraction"),
        # what the certificate rests on and states
        "score_range",
        # when to stop
        *BudgetSettings.model_fields,
        # how fast a model is asked
        "reflection_per_minute",
        # trackers and output
        *TrackingSettings.model_fields,
        *OutputSettings.model_fields,
    }
)
"""Settings that may differ when a run is resumed: its requests, and their order, stay the same."""


def fault(**flags_given: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load(None, {"url": URL, "max_metric_calls": 10, **flags_given})
    return str(caught.value)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(text)
    return path


def test_every_parameter_of_gepa_optimize_is_a_setting_or_is_replaced_for_a_stated_reason() -> None:
    parameters = set(inspect.signature(optimize).parameters)
    reachable = set(RunConfig.model_fields) & parameters
    assert reachable | set(REPLACED) == parameters
    assert not reachable & set(REPLACED)
    assert all(len(reason) > 10 for reason in REPLACED.values())


def test_defaults_that_gepa_shares_are_gepas_own() -> None:
    parameters = inspect.signature(optimize).parameters
    ours = {name: RunConfig.model_fields[name].default for name in PASSED}
    theirs = {name: parameters[name].default for name in PASSED}
    assert ours == theirs


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("max_metric_cals = 50", r"run\.toml: .*`max_metric_cals`.*`max_metric_calls`"),
        ('run_dir = "x"', "pickled"),
        ('token = "x"', "token_file"),
        ('seed = "many"', r"`seed` \(.*run\.toml\): must be a valid integer"),
        ("target_score = nan", r"`target_score` \(.*run\.toml\): must be a finite number \(given: .+\)$"),
        ("trainset = []", r"`trainset` \(.*run\.toml\): .*at least 1 item"),
        ("trainset = [{ x = 1 }, { x = [nan] }]", r"`trainset` \(.*run\.toml\): .*row 1 cannot be written as JSON"),
    ],
)
def test_a_line_of_a_file_that_cannot_be_is_named_with_the_reason(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path, f'url = "{URL}"\nmax_metric_calls = 5\n{line}\n')
    with pytest.raises(SettingsError, match=message):
        load(path, {})


def test_a_range_of_scores_is_two_numbers_that_grow_and_its_flag_is_written_as_it_is_read() -> None:
    for given in ("-1,1", (-1.0, 1.0), [-1, 1]):
        found = load(None, {"url": [URL], "max_metric_calls": 5, "score_range": given})
        assert found.score_range == (-1, 1)
        assert flag_arguments("score_range", found.recorded()["score_range"]) == ["--score-range=-1.0,1.0"]
    for wrong, rule in (("3,1", "then the highest one"), ("0", "such as 0,100"), ("a,b", "such as 0,100")):
        assert rule in fault(score_range=wrong)


@pytest.mark.parametrize("name", ["failure_score", "perfect_score", "target_score"])
def test_a_score_that_cannot_be_compared_is_refused(name: str) -> None:
    for text, rule in (
        ("-inf", "a finite number"),
        ("1e300", r"from -1e\+100 to 1e\+100"),
        ("-1e101", r"from -1e\+100 to 1e\+100"),
    ):
        assert re.search(rf"^`{name}`: must be {rule} \(given: .+\)$", fault(**{name: text}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"selection_strategy": "top_k:0"}, "`selection_strategy`"),
        ({"reflection": "model"}, "reflection_lm"),
        ({"reflection_lm_kwargs": "{}"}, "`reflection_lm_kwargs`"),
        ({"reflection_prompt_template": "<curr_param> <side_info>"}, "needs `reflection_lm`"),
        ({"reflection_lm": "x", "reflection_prompt_template": "<curr_param>"}, "<side_info>"),
        ({"reflection_lm": "x", "reflection_lm_kwargs": "[1]"}, "JSON object"),
        ({"reflection_lm": "x", "reflection_lm_kwargs": "{"}, "not JSON"),
        ({"validation": "race:9"}, "race:10 or more"),
        ({"validation": "race:"}, "`validation`: give full, race, or race with numbers of rows"),
        ({"reflection_lm": "x", "reflection_prompt_template": "@nowhere.txt"}, "nowhere.txt"),
        ({"proposals": "0"}, "P or PxN"),
        ({"proposals": "2x"}, "P or PxN"),
        ({"auto": "light"}, "`max_metric_calls` and `auto` all limit the metric calls"),
        ({"failure_stop": 0.0}, "`failure_stop`"),
        ({"failure_stop": 1.5}, "`failure_stop`"),
        ({"max_cost_usd": 0.0}, "`max_cost_usd`"),
        ({"max_seconds": -1.0}, "`max_seconds`"),
        ({"max_seconds": 1e12}, "less than or equal to 1000000000"),
        ({"reflection_per_minute": 5.0}, "needs `reflection_lm`"),
        ({"test_fraction": 0.2, "testset": "t.jsonl"}, "`test_fraction` and `testset` are given"),
        ({"val_fraction": 0.2, "valset": "v.jsonl"}, "`val_fraction` and `valset` are given"),
        ({"url": [URL, f"{URL}/rpc/"]}, "given twice"),
        ({"url": []}, "`fleet`"),
        ({"url": [], "fleet": "f", "token_file": "x"}, "fleet file names its own"),
    ],
)
def test_settings_that_contradict_or_mean_nothing_are_refused(given: dict[str, Any], message: str) -> None:
    assert message in fault(**given)


def test_a_run_needs_an_end_and_a_check_does_not() -> None:
    with pytest.raises(SettingsError, match="max_metric_calls"):
        load(None, {"url": URL})
    assert load(None, {"url": URL}, must_end=False).max_metric_calls is None
    for budget in ({"max_cost_usd": 1.0}, {"max_seconds": 5.0}, {"patience": 3}, {"target_score": 0.0}):
        assert load(None, {"url": URL, **budget, "validation": "race:10"}).ends


@pytest.mark.parametrize("limit", [name for name in ENDINGS if SETTINGS[name].kind in (int, float)])
def test_the_flag_that_continues_a_run_raises_the_limit_that_ended_it(limit: str) -> None:
    reached = 2 if SETTINGS[limit].kind is int else 0.5
    run = StoredRun(
        id="r",
        config={"max_iterations": 4, limit: reached},
        reason=f"{limit} of {reached} is reached",
        counters={"iteration": 4, ENDINGS[limit].counter: reached},
        best={"score": 0.5},
    )
    flag, raised, *others = flags_to_continue(run)
    assert others == ([] if limit == "max_iterations" else [SETTINGS["max_iterations"].flag, "8"])
    assert flag == SETTINGS[limit].flag
    assert getattr(load(None, {"url": URL, limit: raised}), limit) > reached


def test_paths_in_a_file_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("@all: <curr_param> <side_info>")
    path = written(
        tmp_path,
        'fleet = "fleet.txt"\nscore_with = "http://127.0.0.1:2 token-file=t"\nstore = "my.db"\nproposals = 4\n'
        'trainset = "train.jsonl"\nvalset = "val"\noutput = "out"\n'
        'reflection_lm = "x"\n[reflection_prompt_template]\nrules = "@prompt.txt"\n',
    )
    settings = load(path, {"max_metric_calls": 5})
    assert (settings.url, settings.fleet) == ((), tmp_path / "fleet.txt")
    assert (settings.score_with, settings.proposals) == ((f"http://127.0.0.1:2 token-file={tmp_path / 't'}",), "4")
    assert settings.store == str(tmp_path / "my.db")
    assert settings.trainset == str(tmp_path / "train.jsonl")
    assert settings.valset == "val"
    assert settings.output == tmp_path / "out"
    assert settings.recorded()["reflection_prompt_template"] == {"rules": "@all: <curr_param> <side_info>"}


def test_keys_and_passwords_are_not_recorded_but_numbers_of_tokens_and_prompts_are() -> None:
    settings = load(
        None,
        {
            "url": URL,
            "patience": 1,
            "store": "mongodb://me:hush@somewhere/runs",
            "reflection_lm": "x",
            "reflection_lm_kwargs": json.dumps(
                {
                    "api_key": "hush",
                    "max_tokens": 9,
                    "fallbacks": [{"headers": {"Authorization": "hush"}}],
                    "thinking": {"budget_tokens": 9},
                    "credentials": {"client": "hush"},
                }
            ),
            "reflection_prompt_template": '{"key_points": "<curr_param> <side_info>"}',
        },
    )
    recorded = settings.recorded()
    assert "hush" not in json.dumps(recorded)
    assert recorded["reflection_lm_kwargs"]["thinking"] == {"budget_tokens": 9}
    assert recorded["reflection_lm_kwargs"]["max_tokens"] == 9
    assert recorded["reflection_prompt_template"] == {"key_points": "<curr_param> <side_info>"}


def test_recorded_settings_give_the_run_again_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(
        None,
        {
            "url": [URL, "http://127.0.0.1:2"],
            "token_file": Path("token"),
            "trainset": "train.jsonl",
            "valset": "val",
            "max_metric_calls": 5,
            "proposals": "2x2",
            "reflection_lm": "x",
            "reflection_lm_kwargs": '{"temperature": 0.5}',
            "output": Path("out"),
            "seed": 3,
        },
    )
    recorded = json.loads(json.dumps(settings.recorded()))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = from_record(recorded, {})
    assert again.recorded() == recorded
    assert again.token_file == tmp_path / "token"
    assert again.trainset == str(tmp_path / "train.jsonl")
    assert again.valset == "val"
    assert again.output == tmp_path / "out"
    assert again.sampling == "pxn:2x2"
    assert from_record(recorded, {}, without=("output",)).output is None


def test_flags_override_recorded_settings_and_their_equivalents(tmp_path: Path) -> None:
    recorded = load(
        None,
        {
            "url": URL,
            "max_metric_calls": 5,
            "use_merge": True,
            "proposals": "4",
            "reflection_lm": "x",
            "reflection_lm_kwargs": '{"api_key": "hush"}',
            "validation": "race:40:75",
        },
    ).recorded()
    flags = {"fleet": tmp_path / "f", "max_metric_calls": 9, "use_merge": False, "proposals": "1x2"}
    settings = from_record(recorded, {**flags, "reflection_lm": "program", "validation": "race"})
    assert settings.validation == "race:40:75", "its numbers are those of the run"
    assert (settings.url, settings.fleet, settings.max_metric_calls) == ((), tmp_path / "f", 9)
    assert (settings.proposals, settings.reflection_lm, settings.use_merge) == ("1x2", None, False)


@pytest.mark.parametrize(
    ("kwargs", "place"),
    [
        ('{"headers": {"Authorization": "hush"}, "top_p": 1}', "headers.Authorization"),
        ('{"a": [{"api_key": "hush"}], "top_p": 1}', "a.api_key"),
    ],
)
def test_a_secret_that_was_not_recorded_must_be_given_again(kwargs: str, place: str) -> None:
    given = {"url": URL, "max_metric_calls": 5, "reflection_lm": "x", "reflection_lm_kwargs": kwargs}
    recorded = load(None, given).recorded()
    with pytest.raises(SettingsError, match=rf"reflection_lm_kwargs\.{place} may be.*`reflection_lm_kwargs`"):
        from_record(recorded, {})
    again = from_record(recorded, {"reflection_lm_kwargs": '{"temperature": 1}'})
    assert again.reflection_lm_kwargs == {"temperature": 1}
    assert (from_record(recorded, {}, calls=False).reflection_lm_kwargs or {})["top_p"] == 1, "what is recorded stays"


def test_recorded_settings_of_another_version_are_named() -> None:
    recorded = load(None, {"url": URL, "max_metric_calls": 5}).recorded()
    with pytest.raises(SettingsError, match="other_thing, wonder"):
        from_record({**recorded, "wonder": 1, "other_thing": 2}, {})
    with pytest.raises(SettingsError, match="`seed` \\(the run's record\\): "):
        from_record({**recorded, "seed": "first"}, {})


def test_the_store_is_the_one_the_record_came_from() -> None:
    recorded = load(None, {"url": URL, "max_metric_calls": 5, "store": "old.db"}).recorded()
    assert from_record(recorded, {}).store is None
    assert from_record(recorded, {"store": "new.db"}).store == "new.db"


def test_every_setting_may_change_or_is_part_of_a_runs_identity() -> None:
    assert {*SETTINGS, "reflection_images"} == MAY_CHANGE | IDENTITY_SETTINGS
    assert set(identity_settings(RunConfig(url=(URL,)))) == IDENTITY_SETTINGS - {
        "proposals",
        "evolve",
        "deterministic",
    } | {"sampling_strategy", "reflection"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"proposals": "1"}, {}),
        ({"reflection_lm": "program"}, {}),
        ({"reflection_lm": "x", "reflection_lm_kwargs": {}}, {"reflection_lm": "x"}),
        (
            {"reflection_lm": "x", "reflection_lm_kwargs": {"api_key": "hush", "api_base": "http://a", "top_p": 1}},
            {"reflection_lm": "x", "reflection_lm_kwargs": {"top_p": 1}},
        ),
        ({"validation": "race:30:9"}, {"validation": "race:30"}),
    ],
)
def test_settings_that_mean_the_same_have_the_same_identity(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = RunConfig(url=(URL,), **one), RunConfig(url=(URL,), **other)
    assert identity_settings(first) == identity_settings(second)


@pytest.mark.parametrize("other", [{"proposals": "2"}, {"seed": 1}, {"reflection_lm": "x"}, {"validation": "race:30"}])
def test_settings_a_replay_depends_on_change_the_identity(other: dict[str, Any]) -> None:
    assert identity_settings(RunConfig(url=(URL,), **other)) != identity_settings(RunConfig(url=(URL,)))


def test_a_flag_has_precedence_over_a_variable_and_a_variable_over_file_and_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(
        tmp_path, f'url = "{URL}"\nseed = 1\npatience = 1\nmax_seconds = 1\ntest_fraction = 0.2\nval_fraction = 0.3\n'
    )
    recorded = load(path, {}).recorded()
    monkeypatch.setenv("GEPA_SEED", "2")
    monkeypatch.setenv("GEPA_PATIENCE", "2")
    monkeypatch.setenv("GEPA_FLEET", "")
    monkeypatch.setenv("GEPA_AUTO", "light")
    monkeypatch.setenv("GEPA_VALSET", "val")
    flags = {"seed": "3", "max_metric_calls": "9", "testset": "test"}
    for settings in (load(path, flags), from_record(recorded, flags)):
        assert (settings.seed, settings.patience, settings.max_seconds, settings.fleet) == (3, 2, 1.0, None)
        assert (settings.auto, settings.test_fraction) == (None, 0.0), "they are other ways to set what flags set"
        assert (settings.valset, settings.val_fraction) == ("val", None)
    assert from_record(recorded, {}, calls=False).seed == 1
    monkeypatch.setenv("GEPA_PATIENCE", "soon")
    with pytest.raises(SettingsError, match=r"^`GEPA_PATIENCE`: must be a valid integer"):
        load(path, {})


@pytest.mark.parametrize(
    ("given", "stdin", "message"),
    [
        ({"trainset": "-", "valset": "-"}, "[]", "`trainset` and `valset` are `-`: stdin can be read once"),
        ({"testset": "-"}, "", "`testset`: stdin: holds no rows"),
        ({"testset": "-"}, "a,b\n1,2\n", "`testset`: stdin: line 1: not JSON"),
        ({"testset": "-"}, "[1]", "`testset`: stdin: row 0 is not a JSON object"),
        pytest.param(
            {"trainset": "-"},
            " " * (2**20 + 1),
            "`trainset`: stdin has more than 1 MB: give the rows as a file",
            id="too large",
        ),
    ],
)
def test_rows_that_stdin_does_not_hold_are_named(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], stdin: str, message: str
) -> None:
    monkeypatch.setattr(loading, "STDIN_BYTES", 2**20)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
    assert message in fault(**given)
