"""What a program's manifests amount to."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from sandbox_runtime import Recipe, SandboxError
from sandbox_runtime.source.client_sandbox import ClientSettings
from sandbox_runtime.source.recipes import ProgramNeeds, program_needs


@dataclass(frozen=True)
class Files:
    files: dict[str, str]

    async def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        return {path: self.files[path].encode() for path in paths if path in self.files}

    async def ids(self) -> dict[str, str]:
        return {path: str(hash(content)) for path, content in self.files.items()}


async def needs(files: dict[str, str], folder: str = "") -> ProgramNeeds:
    return await program_needs(Files(files), folder)


@pytest.mark.parametrize(
    ("files", "recipe"),
    [
        ({"app.py": "", "other/requirements.txt": "x"}, Recipe(python=">=3.8")),
        ({"app.js": "", ".nvmrc": "20"}, Recipe(node="20")),
        ({"app.js": "", "package.json": "{}"}, Recipe(files={"package.json": b"{}"})),
    ],
)
async def test_a_program_that_asks_for_nothing_has_a_python(files: dict[str, str], recipe: Recipe) -> None:
    assert (await needs(files)).recipe == recipe


async def test_manifests_of_the_programs_folder_override_those_at_the_top() -> None:
    files = {"requirements.txt": "top\n", "package.json": "{}", "app/requirements.txt": "own\n"}
    found = await needs(files, "app")
    assert found.recipe.install is not None
    assert (found.recipe.install.folder, found.recipe.install.decided_by) == ("app", "app/requirements.txt")
    assert found.recipe.files == {"package.json": b"{}"}
    assert found.node_folder == ""


async def test_the_recipe_has_the_manifests_of_local_node_packages() -> None:
    files = {
        "apps/bot/package.json": '{"dependencies": {"a": "file:../../libs/shared", "packed": "file:vendor/p.tgz"}}',
        "apps/bot/package-lock.json": "{}",
        "apps/bot/vendor/p.tgz": "packed",
        "apps/bot/requirements.txt": "x",
        "libs/shared/package.json": '{"scripts": {"prepare": "tsc"}, "dependencies": {"base": "file:../base"}}',
        "libs/base/package.json": "{}",
        "libs/other/package.json": "{}",
    }
    found = await needs(files, "apps/bot")
    assert found.node_folder == ""
    assert found.recipe.node_folders == ("apps/bot", "libs/shared")
    assert sorted(found.recipe.files) == sorted(
        path for path in files if path.split("/")[1] != "other" and not path.endswith(".txt")
    )


async def test_a_program_in_a_workspace_is_installed_with_all_of_it() -> None:
    files = {
        "web/package.json": '{"workspaces": ["packages/*", "!packages/old"]}',
        "web/package-lock.json": "{}",
        "web/packages/bot/package.json": '{"dependencies": {"shared": "*"}}',
        "web/packages/shared/package.json": "{}",
        "web/packages/shared/node_modules/x/package.json": "{}",
        "web/packages/old/package.json": "{}",
        "web/packages/deep/er/package.json": "{}",
    }
    found = await needs(files, "web/packages/bot")
    assert (found.node_folder, found.recipe.node_folders) == ("web", ("",))
    names = ["package.json", "package-lock.json", "packages/bot/package.json", "packages/shared/package.json"]
    assert sorted(found.recipe.files) == sorted(names)


PNPM = {
    "web/package.json": '{"packageManager": "pnpm@9.15.9"}',
    "web/pnpm-lock.yaml": "lockfileVersion: '9.0'\n",
    "web/pnpm-workspace.yaml": """packages:
  - 'packages/*'  # all

  - "!packages/old"
# more
  - tools/**
catalog:
  left: 1.0.0
""",
    "web/.pnpmfile.cjs": "",
    "web/patches/left.patch": "",
    "web/packages/bot/package.json": '{"dependencies": {"shared": "workspace:*", "left": "catalog:"}}',
    "web/packages/shared/package.json": '{"dependencies": {"own": "link:../../own"}}',
    "web/tools/deep/er/package.json": "{}",
    "web/own/package.json": "{}",
}
NO_PNPM = {"web/packages/old/package.json": "{}", "web/other/package.json": "{", "pnpm-lock.yaml": "", "a.patch": ""}


async def test_a_program_in_a_pnpm_workspace_is_installed_with_all_of_it() -> None:
    found = await needs(PNPM | NO_PNPM, "web/packages/bot")
    assert (found.node_folder, found.recipe.node_folders) == ("web", ("packages/bot",))
    assert sorted(found.recipe.files) == sorted(name.removeprefix("web/") for name in PNPM)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"pnpm-workspace.yaml": "packages: [a, b]\n"}, r"web/pnpm-workspace.yaml cannot be read: write one line"),
        ({"pnpm-workspace.yaml": "packages:\n  - *all\n"}, r"web/pnpm-workspace.yaml cannot be read: write one line"),
        ({"pnpm-lock.yaml": "resolution: {directory: own, type: directory}\n"}, "web/pnpm-lock.yaml: .*`link:FOLDER`"),
        ({"packages/bot/package.json": '{"dependencies": {"x": "link:../x"}}'}, "no web/packages/x/package.json"),
        ({"package-lock.json": "{}"}, "`workspace:.`, which npm cannot install.* and no lock of npm"),
    ],
)
async def test_a_pnpm_workspace_that_no_sandbox_can_have_is_named(changed: dict[str, str], words: str) -> None:
    with pytest.raises(SandboxError, match=words):
        await needs(PNPM | {f"web/{name}": content for name, content in changed.items()}, "web/packages/bot")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("file:../../shared", r"app/package.json: .*`shared` is `file:../../shared`.*outside of the repository"),
        ("/srv/shared", "outside of the repository"),
        ("~/shared", "outside of the repository"),
        ("file:../shared", "the commit has no shared/package.json"),
        ("workspace:*", "which npm cannot install"),
    ],
)
async def test_a_local_node_package_that_no_sandbox_can_have_is_named(spec: str, words: str) -> None:
    with pytest.raises(SandboxError, match=words):
        await needs({"app/package.json": f'{{"dependencies": {{"shared": "{spec}"}}}}'}, "app")


@pytest.mark.parametrize("changed", ["base.txt", "app/limits.txt", "libs/x/pyproject.toml", "app/x.whl"])
async def test_what_the_tool_reads_is_part_of_the_recipe(changed: str) -> None:
    first = "\0".join("-r ../base.txt\n-r missing.txt\n")  # as in UTF-16
    files = {"app/requirements.txt": first, "base.txt": "-capp/limits.txt", "app/limits.txt": "z<3"}
    files |= {"app/x.whl": "", "app/prompt.txt": "", "libs/x/pyproject.toml": ""}
    before = (await needs(files, "app")).recipe
    assert (await needs({**files, changed: "[other]"}, "app")).recipe.digest != before.digest
    assert (await needs({**files, "app/prompt.txt": "x", "app/x.py": ""}, "app")).recipe.digest == before.digest


@pytest.mark.parametrize(
    ("files", "command", "unused"),
    [
        ({"pyproject.toml": "[tool.poetry]"}, "poetry install", ()),
        ({"pyproject.toml": "[project]", "poetry.lock": "", "requirements.txt": ""}, "poetry", ("requirements.txt",)),
        ({"pyproject.toml": "[project]", "pdm.lock": "", "Pipfile": ""}, "pdm .*sync", ("Pipfile",)),
        ({"pyproject.toml": "\ufeff[build-system]", "requirements.txt": ""}, "uv pip .* -.*txt --editable", ()),
        ({"app/pyproject.toml": "[tool.ruff]", "uv.lock": "", "pyproject.toml": "[project]"}, "uv sync --frozen", ()),
    ],
)
async def test_a_lock_or_manifest_decides_which_tool_installs(
    files: dict[str, str], command: str, unused: tuple[str, ...]
) -> None:
    install = (await needs(files, "app")).recipe.install
    assert install is not None
    assert re.match(command, " ".join(install.command))
    assert install.unused == unused


async def test_files_of_a_tool_that_is_not_run_are_named() -> None:
    with pytest.raises(SandboxError, match=r"app/Pipfile is of a tool that is not run here: .*requirements.txt"):
        await needs({"app/Pipfile": ""}, "app")


@pytest.mark.parametrize(
    ("files", "python"),
    [
        ({".python-version": "# ours\n3.12\n", "pyproject.toml": "[project]\nrequires-python = '>=3.10'"}, "3.12"),
        ({"pyproject.toml": "[project]\nrequires-python = '>=3.10'"}, ">=3.10"),
        ({"pyproject.toml": "[tool.x]"}, ">=3.8"),
        ({"requirements.txt": ""}, None),
    ],
)
async def test_the_version_of_python_is_read_from_the_project(files: dict[str, str], python: str | None) -> None:
    assert (await needs(files)).recipe.python == python


@pytest.mark.parametrize(
    ("files", "node"),
    [
        ({".nvmrc": "v20.1.0\n"}, "v20.1.0"),
        ({".nvmrc": "lts/iron"}, "20"),
        ({".nvmrc": "lts/*"}, "*"),
        ({".node-version": "22", ".nvmrc": "20"}, "22"),
        ({"package.json": '{"engines": {"node": "^20 || 22.x"}}'}, "^20 || 22.x"),
        ({"package.json": '{"engines": []}'}, None),
    ],
)
async def test_the_version_of_node_is_read_from_the_project(files: dict[str, str], node: str | None) -> None:
    assert (await needs(files)).recipe.node == node


@pytest.mark.parametrize("files", [{"pyproject.toml": "no ["}, {"package.json": "{"}])
async def test_an_unreadable_manifest_is_an_error_with_its_name(files: dict[str, str]) -> None:
    with pytest.raises(SandboxError, match=f"{next(iter(files))} cannot be read"):
        await needs(files)


async def test_settings_override_the_manifests() -> None:
    found = await needs({".python-version": "3.11", "requirements.txt": "x\n"})
    assert ClientSettings(python="3.12", packages=("y",)).recipe(found) == Recipe(
        python="3.12", install=found.recipe.install, packages=("y",)
    )
