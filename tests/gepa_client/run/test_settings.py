"""Settings: every option of GEPA's reachable under its own name, and every mistake named with its place."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from gepa.api import optimize

from gepa_client.run.config import REPLACED, RunConfig
from gepa_client.run.settings import SettingsError, load
from gepa_client.run.strategies import BUILT, PASSED

URL = "http://127.0.0.1:1"


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


def test_every_reachable_parameter_reaches_gepa() -> None:
    reachable = set(RunConfig.model_fields) & set(inspect.signature(optimize).parameters)
    assert set(PASSED) | set(BUILT) == reachable
    assert not set(PASSED) & set(BUILT)


def test_defaults_that_gepa_shares_are_gepas_own() -> None:
    parameters = inspect.signature(optimize).parameters
    ours = {name: RunConfig.model_fields[name].default for name in PASSED}
    theirs = {name: parameters[name].default for name in PASSED}
    assert theirs.pop("val_evaluation_policy") is None  # GEPA reads None as full_eval
    assert ours.pop("val_evaluation_policy") == "full_eval"
    assert ours == theirs


def test_a_file_and_flags_give_the_same_settings(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f'url = "{URL}"\nmax_metric_calls = 50\nuse_merge = true\nstop_callbacks = ["timeout:60", "no_improvement:3"]\n'
        'reflection_lm = "openai/x"\n[reflection_lm_kwargs]\ntemperature = 0.5\n',
    )
    given = {
        "url": URL,
        "max_metric_calls": 50,
        "use_merge": True,
        "stop_callbacks": ["timeout:60", "no_improvement:3"],
        "reflection_lm": "openai/x",
        "reflection_lm_kwargs": '{"temperature": 0.5}',
    }
    assert load(path, {}) == load(None, given)


def test_a_flag_overrides_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, f'url = "{URL}"\nmax_metric_calls = 50\nseed = 1\n')
    settings = load(path, {"max_metric_calls": 70, "seed": None})
    assert (settings.max_metric_calls, settings.seed) == (70, 1)


def test_an_unknown_key_is_named_with_its_file_and_the_nearest_known_one(tmp_path: Path) -> None:
    path = written(tmp_path, f'url = "{URL}"\nmax_metric_cals = 50\n')
    with pytest.raises(SettingsError) as caught:
        load(path, {})
    assert str(path) in str(caught.value)
    assert "`max_metric_cals`" in str(caught.value)
    assert "`max_metric_calls`" in str(caught.value)


def test_a_replaced_parameter_in_a_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = written(tmp_path, f'url = "{URL}"\nmax_metric_calls = 5\nrun_dir = "x"\n')
    with pytest.raises(SettingsError, match="pickled"):
        load(path, {})


def test_a_token_in_a_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, f'url = "{URL}"\nmax_metric_calls = 5\ntoken = "x"\n')
    with pytest.raises(SettingsError, match="token_file"):
        load(path, {})


def test_a_wrong_value_is_named_by_flag_or_by_file_and_key(tmp_path: Path) -> None:
    path = written(tmp_path, f'url = "{URL}"\nmax_metric_calls = "many"\n')
    with pytest.raises(SettingsError, match=r"run\.toml: max_metric_calls: "):
        load(path, {})
    assert "--failure-score: " in fault(failure_score=float("nan"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sampling_strategy": "pxn:2"}, "sampling_strategy"),
        ({"selection_strategy": "top_k:0"}, "selection_strategy"),
        ({"stop_callbacks": ["timeout:soon"]}, "timeout:soon"),
        ({"stop_callbacks": ["forever:1"]}, "forever:1"),
        ({"stop_callbacks": ["no_improvement:0"]}, "above 0"),
        ({"stop_callbacks": ["score_threshold:nan"]}, "number"),
        ({"reflection": "program", "reflection_lm": "openai/x"}, "reflection_lm"),
        ({"reflection": "model"}, "reflection_lm"),
        ({"reflection_lm_kwargs": "{}"}, "reflection_lm_kwargs"),
        ({"reflection_prompt_template": "<curr_param> <side_info>"}, "no reflection_lm"),
        ({"reflection_lm": "x", "reflection_prompt_template": "<curr_param>"}, "<side_info>"),
        ({"reflection_lm": "x", "reflection_lm_kwargs": "[1]"}, "JSON object"),
        ({"reflection_lm": "x", "reflection_lm_kwargs": "{"}, "not JSON"),
        ({"max_reflection_cost": 1.0}, "max_reflection_cost"),
        ({"wandb_init_kwargs": '{"project": "x"}'}, "use_wandb"),
        ({"wandb_api_key": "secret"}, "@file"),
        ({"merge_val_overlap_floor": 3}, "use_merge"),
        ({"reflection_lm": "x", "reflection_prompt_template": "@nowhere.txt"}, "nowhere.txt"),
    ],
)
def test_settings_that_contradict_or_mean_nothing_are_refused(given: dict[str, Any], said: str) -> None:
    assert said in fault(**given)


def test_a_run_needs_an_end_and_a_check_does_not() -> None:
    with pytest.raises(SettingsError, match="max-metric-calls"):
        load(None, {"url": URL})
    assert load(None, {"url": URL}, must_end=False).max_metric_calls is None
    assert load(None, {"url": URL, "stop_callbacks": ["timeout:1"]}).ends


def test_paths_in_a_file_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("<curr_param> <side_info>")
    path = written(
        tmp_path,
        f'url = "{URL}"\nmax_metric_calls = 5\ntrainset = "train.jsonl"\nvalset = "val"\noutput = "out"\n'
        'reflection_lm = "x"\nstop_callbacks = ["file:stop"]\n[reflection_prompt_template]\nrules = "@prompt.txt"\n',
    )
    settings = load(path, {})
    assert settings.trainset == str(tmp_path / "train.jsonl")
    assert settings.valset == "val"
    assert settings.output == tmp_path / "out"
    assert settings.stop_callbacks == (f"file:{tmp_path / 'stop'}",)
    assert settings.reflection_prompt_template == {"rules": "<curr_param> <side_info>"}


def test_what_may_be_a_secret_is_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hush\n")
    settings = load(
        None,
        {
            "url": URL,
            "max_metric_calls": 5,
            "use_wandb": True,
            "wandb_api_key": f"@{tmp_path / 'key'}",
            "reflection_lm": "x",
            "reflection_lm_kwargs": '{"api_key": "hush", "max_tokens": 9, "headers": {"Authorization": "hush"}}',
        },
    )
    assert settings.wandb_api_key == "hush"
    assert "hush" not in json.dumps(settings.recorded())
    assert settings.recorded()["reflection_lm_kwargs"]["max_tokens"] == 9
