"""Settings of sandboxes: contradictions are named, the record can start them again, secrets are not recorded."""

import json
from pathlib import Path
from typing import Any

import pytest

from evolverpc_common.settings.sources import SettingsError
from gepa_client.run.export_import import imported_settings
from gepa_client.settings.loading import from_record, load
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.run_settings import SandboxSettings

URL = "http://127.0.0.1:1"


def loaded(**given: Any) -> RunConfig:
    return load(None, {"repo": "https://example.com/owner/name", "max_metric_calls": 10, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": [URL]}, "`url` and `repo` are given"),
        ({"fleet": Path("f")}, "not both"),
        ({"repo": "https://me:hush@example.com/owner/name"}, "git_token_file"),
        ({"sandbox": "process", "allow_hosts": ["example.com"]}, "allow_hosts"),
        ({"allow_hosts": ["example.com", "*"]}, "every host"),
        ({"modal_app": "mine"}, "for Modal"),
        ({"gateway": "8000=https://gateway.example.com"}, "for Modal"),
        ({"sandbox": "modal", "gateway": "8000"}, "`gateway`: give PORT=URL"),
        ({"sandbox": "modal", "models": ["gpt-*"]}, "`models`: at Modal, models need a `gateway`"),
        ({"model_prices": '{"m": [1, -1]}'}, "`model_prices`"),
        ({"model_providers": '{"p": {"key": "hush"}}'}, "`model_providers`"),
        ({"secret_headers": ["api.example.com Authorization: hush@"]}, "`secret_headers`: give `HOST HEADER=VARIABLE`"),
        ({"secret_headers": ["a.b X=MY_KEY"], "pass_env": ["MY_KEY"]}, "hands MY_KEY to the program"),
        ({"sandbox": "modal", "secret_headers": ["a.b X=KEY"]}, "need a `gateway`"),
        ({"sandboxes": 0}, "`sandboxes`"),
        *(({"engine": engine}, "`engine`: give") for engine in ("", "foo", "local", "ray://head", "http://head:10001")),
    ],
)
def test_contradictory_settings_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(**given)
    assert message in str(caught.value)
    assert "hush@" not in str(caught.value)


def test_what_a_sandbox_may_write_is_at_most_half_of_its_memory() -> None:
    assert [loaded(sandbox_memory_mb=size).sandbox_workspace_mb for size in (512, 8192)] == [256, 1024]


@pytest.mark.parametrize(("name", "value"), [("ref", "main"), ("sandboxes", 7), ("build_hosts", ["a"])])
def test_a_setting_of_sandboxes_is_refused_without_a_repository(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=f"`{name}` needs `repo`"):
        load(None, {"url": [URL], "max_metric_calls": 10, name: value})


def test_a_record_starts_the_sandboxes_again_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = loaded(
        repo="program",
        ref="main",
        sandbox="process",
        sandboxes=3,
        git_token_file="token",
        pass_env=["MY_KEY"],
        secret_headers=["api.example.com Authorization=Bearer MY_TOKEN"],
        model_prices='{"m": [0.5, 1.5]}',
        model_providers='{"mine": {"base_url": "http://127.0.0.1:1/v1", "key_env": "MY_KEY"}}',
    )
    started = settings.model_copy(update={"fleet": tmp_path / "gone", "ref": "a" * 40})
    recorded = json.loads(json.dumps(RunConfig(**started.model_dump(exclude_unset=True)).recorded()))
    assert recorded["fleet"] is None
    monkeypatch.chdir("/")
    again = from_record(recorded, {})
    assert (again.repo, again.ref, again.sandboxes) == (str(tmp_path / "program"), "a" * 40, 3)
    assert (again.fleet, again.git_token_file, again.pass_env) == (None, tmp_path / "token", ("MY_KEY",))
    assert again.secret_headers == ("api.example.com Authorization=Bearer MY_TOKEN",)
    assert again.model_prices == {"m": (0.5, 1.5)}
    assert again.model_providers is not None
    assert again.model_providers["mine"].key_env == "MY_KEY"


@pytest.mark.parametrize(
    "repo", ["https://example.com/o/n#folder", "git@example.com:o/n", "ssh://git@example.com/o/n", "file:///r"]
)
def test_an_address_elsewhere_is_no_path_and_no_secret(repo: str) -> None:
    assert loaded(repo=repo).recorded()["repo"] == repo


def test_other_servers_take_the_place_of_recorded_sandboxes() -> None:
    recorded = loaded(sandboxes=3, models=["a*"]).recorded()
    for given in ({"url": [URL]}, {"fleet": Path("/f")}):
        settings = from_record(recorded, given)
        assert (settings.repo, settings.sandboxes, settings.models) == (None, 1, ())
    again = from_record(load(None, {"url": [URL], "max_metric_calls": 9}).recorded(), {"repo": "r"})
    assert (again.url, again.repo) == ((), "r")


def test_a_run_from_elsewhere_does_not_choose_what_is_started_here() -> None:
    taken = imported_settings(loaded(pass_env=["MY_KEY"], allow_hosts=["*"]).recorded())
    assert not set(SandboxSettings.model_fields) & set(taken)


@pytest.mark.parametrize(
    ("installed", "chosen"), [("bwrap docker", "bubblewrap"), ("docker", "docker"), ("", "bubblewrap")]
)
def test_the_backend_is_the_one_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: str, chosen: str
) -> None:
    for name in installed.split():
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert RunConfig(repo="/program").sandbox == chosen
