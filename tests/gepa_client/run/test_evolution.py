"""What a run evolves follows from its settings and the server's capabilities; a contradiction is an error."""

from typing import Any

import pytest
from pydantic import ValidationError

from evolverpc_common.settings.sources import SettingsError
from gepa_client.run.fingerprint import differences, fingerprint_of
from gepa_client.run.resolved_settings import evolve_of
from gepa_client.settings.run_config import RunConfig
from protocol import DiscoverResult
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, git_branch
from tests.gepa_client.stored_run import DISCOVERY

URL = "http://127.0.0.1:1"
CODE = {GIT_BRANCH: git_branch("main", "a" * 40), ADDED_COMPONENTS: "{}"}
BOTH = {**CODE, "rules": "r"}


def discovered(seed: dict[str, str], *capabilities: str) -> DiscoverResult:
    program = {"name": "p", "components": [{"name": name} for name in seed], "seed_candidate": seed}
    return DiscoverResult.model_validate(
        DISCOVERY | {"program": program, "datasets": {}, "capabilities": list(capabilities)}
    )


def config(**settings: Any) -> RunConfig:
    return RunConfig(url=(URL,), **({"reflection_lm": "a/model"} | settings))


CHANGES = discovered(BOTH, "commits", "mutations")


@pytest.mark.parametrize(
    ("program", "settings", "wanted"),
    [
        (discovered({"rules": "r"}), {}, "prompts"),
        (discovered(BOTH, "commits"), {}, "prompts"),
        (CHANGES, {}, "both"),
        (CHANGES, {"evolve": "code"}, "code"),
        (CHANGES, {"evolve": "prompts", "reflection_lm": None}, "prompts"),
    ],
)
def test_what_evolves_follows_from_settings_and_capabilities(
    program: DiscoverResult, settings: dict[str, Any], wanted: str
) -> None:
    assert evolve_of(config(**settings), program) == wanted


@pytest.mark.parametrize(
    ("program", "settings", "words"),
    [
        (discovered({"rules": "r"}), {"evolve": "code"}, "does not name the commit that runs, nor change code"),
        (discovered(BOTH, "commits"), {"evolve": "both"}, "does not change code: start it with --allow-mutations"),
        (
            discovered(BOTH),
            {"reflection_prompt_template": {"git_branch": "<outline> <side_info> <lineage>"}},
            "a prompt for git_branch, but the server does not change code",
        ),
        (CHANGES, {"reflection_lm": None}, "give `reflection_lm`"),
        (discovered(CODE, "mutations"), {"evolve": "prompts"}, "no prompts to change"),
        (discovered({**BOTH, GIT_BRANCH: "main"}, "mutations"), {}, "git_branch is 'main'"),
        (discovered({**BOTH, ADDED_COMPONENTS: "[]"}, "mutations"), {}, "added_components is not a JSON object"),
    ],
)
def test_impossible_combinations_are_refused(program: DiscoverResult, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        evolve_of(config(**settings), program)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"evolve": "prompts", "reflection_prompt_template": {"git_branch": "<outline> <side_info> <lineage>"}},
            "a prompt for git_branch, but `evolve` is prompts",
        ),
        ({"evolve": "code", "module_selector": "all"}, "`module_selector` is all, but `evolve` is code"),
        ({"reflection_prompt_template": {"git_branch": "<outline>"}}, "lacks <side_info> and <lineage>"),
    ],
)
def test_settings_without_effect_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        config(**settings)


def identity(program: DiscoverResult, **settings: Any) -> dict[str, Any]:
    return fingerprint_of(config(**settings), program, program.program.seed_candidate, None, {})


def test_what_evolves_is_part_of_the_identity_of_a_run() -> None:
    assert "evolve" not in identity(discovered({"rules": "r"}))  # as runs were recorded before code evolved
    assert differences(identity(CHANGES), identity(CHANGES, evolve="both")) == []
    assert differences(identity(CHANGES), identity(CHANGES, evolve="code")) == ["evolve: both -> code"]


def test_a_run_is_the_same_on_another_branch_but_not_at_another_commit() -> None:
    elsewhere = discovered({**BOTH, GIT_BRANCH: git_branch("detached", "a" * 40)}, "mutations")
    later = discovered({**BOTH, GIT_BRANCH: git_branch("main", "b" * 40)}, "mutations")
    assert differences(identity(CHANGES), identity(elsewhere)) == []
    assert [difference.split(":")[0] for difference in differences(identity(CHANGES), identity(later))] == [
        "seed_candidate"
    ]
