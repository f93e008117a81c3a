"""Flags are the settings; what GEPA takes and we replace is refused with the reason."""

import shlex

from gepa_client.cli.app import COMMANDS
from gepa_client.settings.shell_arguments import GivenArguments
from tests.gepa_client.conftest import Cli


def test_a_command_to_paste_repeats_what_was_typed_as_far_as_the_command_takes_it() -> None:
    given = {
        "score_with": ["http://127.0.0.1:3"],
        "store": "mongodb://me:hush@somewhere/runs",
        "seed": 3,
        "check": "off",
        "server_args": "--agent-command 'sed -i \"s/a/b/\" x'",
    }
    typed = GivenArguments(("http://127.0.0.1:1", "http://127.0.0.1:2"), None, given)
    urls = "http://127.0.0.1:1 http://127.0.0.1:2"
    of_server = f"--server-args={given['server_args']}"
    assert typed.command("check").startswith(f"evolverpc check {urls} --score-with http://127.0.0.1:3")
    assert shlex.split(typed.command("check"))[-1] == of_server
    optimize = typed.command("optimize", patience=4)
    assert optimize.startswith(f"evolverpc optimize {urls} --score-with http")
    assert shlex.split(optimize)[-7:] == ["--seed", "3", "--check", "off", of_server, "--patience", "4"]
    assert "hush" not in optimize


def test_an_option_of_gepa_that_is_replaced_is_refused_as_a_flag_with_the_reason(cli: Cli) -> None:
    ended = cli("optimize", "http://127.0.0.1:9", "--run-dir=x")
    assert ended.status == 2
    assert "cannot be set" in ended.stderr
    assert "pickled" in ended.stderr


def test_the_help_of_resume_names_no_flag_that_makes_another_run(cli: Cli) -> None:
    for flag in ("--help", "--help-all"):
        listed = cli("resume", flag).stdout
        assert "--max-seconds" in listed
        assert "--seed" not in listed
        assert "--reflection-lm " not in listed
    assert "--seed" in cli("fork", "--help").stdout


def test_every_command_prints_its_help_for_h(cli: Cli) -> None:
    for name in ("", *COMMANDS):
        ended = cli(*([name] if name else []), "-h")
        assert ended.status == 0, name
        assert "-h, --help" in ended.stdout


def test_a_flag_can_be_typed_as_messages_name_its_setting(cli: Cli) -> None:
    ended = cli("optimize", "http://127.0.0.1:9", "--max_metric_calls", 0)
    assert (ended.status, "`max_metric_calls`: must be greater" in ended.stderr) == (2, True)
