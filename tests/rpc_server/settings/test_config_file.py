"""Sources of settings, and the errors of wrong ones."""

import re
from pathlib import Path
from typing import Any

import pytest

from evolverpc_common.settings.sources import SettingsError
from rpc_server.cli.serve_command import with_one_command
from rpc_server.settings import _FOR, load_settings


def wrong(folder: Path, text: str, name: str = "gepa.toml", **flags: Any) -> str:
    (folder / name).write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(flags=flags, folder=folder)
    return str(caught.value)


def test_gepa_toml_in_the_working_directory_is_found(tmp_path: Path) -> None:
    (tmp_path / "gepa.toml").write_text(
        'program = "app.py"\nport = 99\ndatasets = { train = "rows.jsonl" }\nexample_timeout_s = 5\n'
        'allowed_hosts = ["box"]\nseed_candidate = { system = "x" }'
    )
    settings = load_settings(folder=tmp_path)
    assert (settings.program, settings.port, settings.root) == ("app.py", 99, tmp_path)
    assert settings.datasets == {"train": Path("rows.jsonl")}
    assert (settings.example_timeout_s, settings.allowed_hosts) == (5.0, ("box",))
    assert settings.seed_candidate == {"system": "x"}


def test_a_table_in_pyproject_is_found_when_there_is_no_gepa_toml(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.gepa]\ncommand = ["node", "p.js"]')
    assert load_settings(folder=tmp_path).command == ("node", "p.js")
    (tmp_path / "gepa.toml").write_text("""command = "node 'my p.js'" """)
    assert load_settings(folder=tmp_path).command == ("node", "my p.js")


def test_a_pyproject_without_the_table_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'")
    assert load_settings(flags={"program": "app"}, folder=tmp_path).root == tmp_path
    with pytest.raises(SettingsError, match=r"no \[tool.gepa\]"):
        load_settings(tmp_path / "pyproject.toml", folder=tmp_path)


def test_flags_override_the_file_and_their_paths_start_where_they_are_typed_not_in_the_root(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "other.toml").write_text('program = "app.py"\nport = 1\nworkers = 2\nconcurrency = 2')
    flags = {"command": ["node", "p.js"], "port": 2, "datasets": {"val": "v.csv"}, "token_file": "t", "concurrency": 4}
    variables = {"GEPA_WORKERS": "3", "GEPA_CONCURRENCY": "3"}
    settings = load_settings(tmp_path / "sub" / "other.toml", flags, folder=tmp_path, environment=variables)
    assert settings.root == tmp_path / "sub", "the folder of the file that is given"
    assert (settings.program, settings.command, settings.port, settings.workers) == (None, ("node", "p.js"), 2, 3)
    assert settings.concurrency == 4
    assert (settings.datasets["val"], settings.token_file) == (tmp_path / "v.csv", tmp_path / "t")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('port = "80"', "port"),
        ("trust_results = 1", "trust_results"),
        ("datasets = ['a']", "datasets"),
        ("command = 5", "command"),
    ],
)
def test_a_value_of_the_wrong_kind_names_key_and_file(tmp_path: Path, text: str, key: str) -> None:
    message = wrong(tmp_path, text if key == "command" else f'program = "a"\n{text}')
    assert f"`{key}` ({tmp_path / 'gepa.toml'})" in message


def test_an_infinite_deadline_is_none_and_nothing_else_is_endless(tmp_path: Path) -> None:
    (tmp_path / "gepa.toml").write_text('program = "a"\nexample_timeout_s = inf')
    assert load_settings(folder=tmp_path).example_timeout_s is None
    assert load_settings(flags={"program": "a", "example_timeout_s": float("inf")}).example_timeout_s is None
    for line in ("example_timeout_s = nan", "example_timeout_s = -inf", "start_timeout_s = inf"):
        assert f"`{line.split(' ', maxsplit=1)[0]}`" in wrong(tmp_path, f'program = "a"\n{line}')


def test_exactly_one_program_is_needed(tmp_path: Path) -> None:
    assert "exactly one of" in wrong(tmp_path, "port = 1")
    assert "`program` (" in wrong(tmp_path, 'program = "a"\nadapter = "b:C"')


@pytest.mark.parametrize(
    ("setting", "good", "bad"),
    [
        ("adapter_args = { a = 1 }", ["adapter"], ["program", "command"]),
        ("workers = 2", ["program", "command"], ["adapter"]),
        ('model_hosts = ["a:1"]', ["program", "adapter"], ["command"]),
        ('python = "python3"', ["program", "adapter"], ["command"]),
    ],
)
def test_a_setting_that_would_have_no_effect_is_refused(
    tmp_path: Path, setting: str, good: list[str], bad: list[str]
) -> None:
    assert "needs `allow_mutations`" in wrong(tmp_path, 'program = "a"\npush = "origin"')
    programs = {"program": 'program = "a"', "adapter": 'adapter = "a:B"', "command": 'command = ["a"]'}
    for kind in good:
        (tmp_path / "gepa.toml").write_text(f"{programs[kind]}\n{setting}")
        load_settings(folder=tmp_path)
    for kind in bad:
        message = wrong(tmp_path, f"{programs[kind]}\n{setting}")
        name = setting.split(" ", maxsplit=1)[0]
        kinds = re.search(rf"`{name}` \(.*\) is for (.*), not for `{kind}`", message)
        assert kinds is not None, message
        assert {*good} <= {*re.findall(r"`(\w+)`", kinds[1])} == {*_FOR[name]}
        assert str(tmp_path / "gepa.toml") in message


def test_a_program_given_by_flag_ignores_the_settings_of_the_files_program(tmp_path: Path) -> None:
    (tmp_path / "gepa.toml").write_text('adapter = "a:B"\nadapter_args = { a = 1 }\nport = 1')
    settings = load_settings(flags={"program": "app"}, folder=tmp_path)
    assert (settings.program, settings.adapter_args, settings.port) == ("app", {}, 1)
    assert "`adapter_args` is for `adapter`" in wrong(tmp_path, "", program="app", adapter_args={"a": 1})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--port", "1"], ["--port", "1"]),
        (["--port", "1", "--command", "node", "p.js", "--port", "2"], ["--port", "1", "--command=node p.js --port 2"]),
        (["--command", "node 'my p.js'", "--port", "1"], ["--command=node 'my p.js'", "--port", "1"]),
        (["--command=node p.js", "--port", "1"], ["--command=node p.js", "--port", "1"]),
        (["--command"], ["--command"]),
    ],
)
def test_everything_after_command_belongs_to_it(given: list[str], expected: list[str]) -> None:
    assert with_one_command(given) == expected


def test_flags_and_variables_are_read_as_a_file_would_hold_them(tmp_path: Path) -> None:
    given = {
        "command": "node 'my p.js'",
        "datasets": ["train=a=b.jsonl", "val=v.csv"],
        "env": ["A=1"],
        "seed_candidate": ' {"system": "y"}',
        "port": "0",
        "trust_results": None,
        "model_hosts": [],
    }
    settings = load_settings(flags=given, folder=tmp_path, environment={})
    assert settings.command == ("node", "my p.js")
    assert settings.datasets == {"train": tmp_path / "a=b.jsonl", "val": tmp_path / "v.csv"}
    assert (settings.env, settings.seed_candidate, settings.port) == ({"A": "1"}, {"system": "y"}, 0)
    variables = {
        "GEPA_COMMAND": "node 'my p.js'",
        "GEPA_DATASETS": "train=a=b.jsonl, val=v.csv",
        "GEPA_ENV": '{"A": "1"}',
    }
    given = {"seed_candidate": ' {"system": "y"}', "port": 0}
    assert load_settings(flags=given, folder=tmp_path, environment=variables) == settings
    adapter = {"adapter": "a:B", "adapter_args": '{"model": "x"}', "seed_candidate": "seed.json"}
    settings = load_settings(flags=adapter, folder=tmp_path, environment={})
    assert (settings.adapter_args, settings.seed_candidate) == ({"model": "x"}, tmp_path / "seed.json")


def test_a_wrong_variable_is_named_as_one(tmp_path: Path) -> None:
    for name, text in (("GEPA_WORKERS", "many"), ("GEPA_JAIL", "perhaps"), ("GEPA_ENV", "A")):
        with pytest.raises(SettingsError, match=f"^`{name}`: .*{text}"):
            load_settings(flags={"program": "app"}, folder=tmp_path, environment={name: text})
    with pytest.raises(SettingsError, match="unknown variable GEPA_WORKRS; did you mean `GEPA_WORKERS`"):
        load_settings(flags={"program": "app"}, folder=tmp_path, environment={"GEPA_WORKRS": "1"})


@pytest.mark.parametrize(
    "given",
    [{"datasets": ["train"]}, {"env": ["=x"]}, {"adapter_args": "{"}, {"adapter_args": "[1]"}, {"command": "a 'b"}],
)
def test_a_flag_that_cannot_be_read_is_named(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(SettingsError, match=f"^`{name}`: "):
        load_settings(flags=given)


def test_the_interpreter_that_was_installed_for_a_program_replaces_that_of_the_file_alone(tmp_path: Path) -> None:
    installed = {"GEPA_PROGRAM_PYTHON": "/installed/bin/python"}
    (tmp_path / "gepa.toml").write_text('program = "app.py"\npython = ".venv/bin/python"\n')
    assert load_settings(folder=tmp_path, environment=installed).python == Path("/installed/bin/python")
    given = load_settings(flags={"python": "/mine"}, folder=tmp_path, environment=installed)
    assert given.python == Path("/mine")
    (tmp_path / "gepa.toml").write_text('command = ["node", "p.js"]\n')
    assert load_settings(folder=tmp_path, environment=installed).python is None
