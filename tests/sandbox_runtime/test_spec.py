"""What a spec refuses with every runtime."""

import pytest

from sandbox_runtime import Allow, Closed, Command, Egress, Open, PreparedEnvironment, Recipe, SandboxSpec, egress_to
from sandbox_runtime.nodes.messages import hosts_of


@pytest.mark.parametrize("egress", [Closed(), Open(), Allow(("a.example",), ("192.0.2.0/24",))])
def test_a_node_gets_the_egress_of_the_spec(egress: Egress) -> None:
    assert egress_to(hosts_of(egress)) == egress


@pytest.mark.parametrize("cwd", ["..", "/etc", "a/../..", "a/../b"])
def test_a_folder_outside_the_workspace_is_refused(cwd: str) -> None:
    with pytest.raises(ValueError, match="workspace"):
        Command(("pwd",), cwd=cwd)


@pytest.mark.parametrize("name", ["PATH", "HOME", "TMPDIR"])
@pytest.mark.parametrize("field", ["env", "secrets"])
def test_variables_that_name_the_sandboxes_own_folders_cannot_be_set(name: str, field: str) -> None:
    prepared = PreparedEnvironment(recipe=Recipe(), server=("server",))
    given = {field: {name: "/elsewhere", "OTHER": "fine"}}
    with pytest.raises(ValueError, match=f"^{name} cannot be set"):
        SandboxSpec(main=Command(("server",)), prepared=prepared, **given)  # type: ignore[arg-type]


def test_the_digest_of_a_recipe_changes_with_each_of_its_parts() -> None:
    parts = ("python", "node", "install", "node_install", "origin")
    recipes = [Recipe(), Recipe(packages=("x",)), *(Recipe(**{part: "x"}) for part in parts)]  # type: ignore[arg-type]
    assert len({each.digest for each in recipes}) == len(recipes)
