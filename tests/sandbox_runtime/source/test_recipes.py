"""What a program's manifests amount to."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from sandbox_runtime import Recipe, SandboxError
from sandbox_runtime.source.client_sandbox import ClientSettings
from sandbox_runtime.source.recipes import program_needs


@dataclass(frozen=True)
class Files:
    files: dict[str, str]

    async def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        return {path: self.files[path].encode() for path in paths if path in self.files}

    async def ids(self) -> dict[str, str]:
        return {path: str(hash(content)) for path, content in self.files.items()}


async def needs(files: dict[str, str], folder: str = "") -> Recipe:
    return await program_needs(Files(files), folder)


@pytest.mark.parametrize(
    ("files", "recipe"),
    [
        ({"app.py": "", "other/requirements.txt": "x"}, Recipe(python=">=3.8")),
        ({"app.js": "", ".nvmrc": "20"}, Recipe(node="20")),
    ],
)
async def test_a_program_that_asks_for_nothing_has_a_python(files: dict[str, str], recipe: Recipe) -> None:
    assert await needs(files) == recipe


async def test_manifests_of_the_programs_folder_override_those_at_the_top() -> None:
    files = {"requirements.txt": "top\n", "package.json": "{}", "app/requirements.txt": "own\n", ".nvmrc": "18"}
    found = await needs({**files, "app/.nvmrc": "20"}, "app")
    assert found.install is not None and found.node == "20"
    assert (found.install.folder, found.install.decided_by) == ("app", "app/requirements.txt")
    assert found.node_install is not None
    assert (found.node_install.folder, found.node_install.decided_by) == ("", "package.json")


LISTS = '{"dependencies": {"a": "1"}}'
NINE = {"pnpm-lock.yaml": "lockfileVersion: '9.0'"}
FROZEN = "install --frozen"


def asking(manager: str) -> dict[str, str]:
    return {"package.json": f'{{"packageManager": "{manager}"}}'}


@pytest.mark.parametrize(
    ("files", "folder", "tool", "command", "unused"),
    [
        ({"app/package.json": LISTS, "package-lock.json": ""}, "app", None, "install", ()),
        ({"package.json": "{}", "package-lock.json": "", "yarn.lock": ""}, "", None, "ci", ("yarn.lock",)),
        ({"package.json": LISTS, "package-lock.json": "", "app/package.json": "{}"}, "", None, "ci", ()),
        ({**asking("npm@10.9.0"), "yarn.lock": ""}, "", "npm@10.9.0", "install", ("yarn.lock",)),
        ({**asking("pnpm@9.15.9+sha512.ab/c="), "pnpm-lock.yaml": ""}, "", "pnpm@9.15.9", FROZEN, ()),
        (
            {**NINE, "package.json": "{}", "pnpm-workspace.yaml": "", "app/package.json": LISTS},
            "",
            "pnpm@10",
            FROZEN,
            (),
        ),
        ({"package.json": "{}", "pnpm-workspace.yaml": ""}, "", "pnpm@10", "install --no-frozen", ()),
        ({"package.json": "{}", "yarn.lock": "# yarn lockfile v1"}, "", "yarn@1", FROZEN, ()),
        ({"package.json": "{}", "yarn.lock": "__metadata:"}, "", "@yarnpkg/cli-dist@4", "install --immutable", ()),
        (asking("yarn@3.6.1"), "", "@yarnpkg/cli-dist@3.6.1", "install --no-immutable", ()),
        ({"package.json": '{"workspaces": ["a"]}', "bun.lock": "", "app/package.json": LISTS}, "", "bun@1", FROZEN, ()),
    ],
)
async def test_a_lock_or_package_manager_decides_what_installs_for_node(
    files: dict[str, str], folder: str, tool: str | None, command: str, unused: tuple[str, ...]
) -> None:
    install = (await needs(files, "app")).node_install
    assert install is not None
    assert (install.folder, install.tool, install.unused) == (folder, tool, unused)
    assert " ".join(install.command).startswith(command)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"package.json": "{}", "pnpm-lock.yaml": "lockfileVersion: 5.4"}, "pnpm-lock.yaml .* in package.json, `"),
        (asking("deno@2.0.0"), "package.json: `packageManager` is 'deno@2.0.0'"),
    ],
)
async def test_a_tool_of_node_that_is_not_known_is_named(files: dict[str, str], words: str) -> None:
    with pytest.raises(SandboxError, match=words):
        await needs(files, "web")


@pytest.mark.parametrize("changed", ["b/package.json", "patches/left.patch", "a/set-up.js", ".yarn/releases/yarn.cjs"])
async def test_what_the_tool_of_node_reads_is_part_of_the_recipe(changed: str) -> None:
    files = {"a/package.json": '{"scripts": {"postinstall": "node ./set-up.js && tsc", "start": "node main.js"}}'}
    files |= {"b/package.json": "{", "patches/left.patch": "", "a/set-up.js": "", ".yarn/releases/yarn.cjs": ""}
    before = await needs(files, "a")
    assert (await needs({**files, changed: "[other]"}, "a")).digest != before.digest
    assert (await needs({**files, "a/main.js": "", "node_modules/x/package.json": ""}, "a")).digest == before.digest


@pytest.mark.parametrize("changed", ["base.txt", "app/limits.txt", "libs/x/pyproject.toml", "app/x.whl"])
async def test_what_the_tool_reads_is_part_of_the_recipe(changed: str) -> None:
    first = "\0".join("-r ../base.txt\n-r missing.txt\n")  # as in UTF-16
    files = {"app/requirements.txt": first, "base.txt": "-capp/limits.txt", "app/limits.txt": "z<3"}
    files |= {"app/x.whl": "", "app/prompt.txt": "", "libs/x/pyproject.toml": ""}
    before = await needs(files, "app")
    assert (await needs({**files, changed: "[other]"}, "app")).digest != before.digest
    assert (await needs({**files, "app/prompt.txt": "x", "app/x.py": ""}, "app")).digest == before.digest


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
    install = (await needs(files, "app")).install
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
    assert (await needs(files)).python == python


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
    assert (await needs(files)).node == node


@pytest.mark.parametrize("files", [{"pyproject.toml": "no ["}, {"package.json": "{"}, {"package.json": "[]"}])
async def test_an_unreadable_manifest_is_an_error_with_its_name(files: dict[str, str]) -> None:
    with pytest.raises(SandboxError, match=f"{next(iter(files))} cannot be read"):
        await needs(files)


async def test_settings_override_the_manifests() -> None:
    found = await needs({".python-version": "3.11", "requirements.txt": "x\n"})
    assert ClientSettings(python="3.12", packages=("y",)).recipe(found) == Recipe(
        python="3.12", install=found.install, packages=("y",)
    )
