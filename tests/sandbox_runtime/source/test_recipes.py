"""What a program's manifests amount to."""

from collections.abc import Iterable

import pytest

from sandbox_runtime import Recipe, SandboxError
from sandbox_runtime.source.client_sandbox import ClientSettings
from sandbox_runtime.source.recipes import ProgramNeeds, program_needs


async def needs(files: dict[str, str], folder: str = "") -> ProgramNeeds:
    async def read(paths: Iterable[str]) -> dict[str, bytes]:
        return {path: files[path].encode() for path in paths if path in files}

    return await program_needs(read, folder)


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
    assert found.recipe.files == {"requirements.txt": b"own\n", "package.json": b"{}"}
    assert found.node_folder == ""


async def test_included_requirements_files_are_part_of_the_recipe() -> None:
    files = {
        "app/requirements.txt": "-r ../base.txt\n-c limits.txt  # not more\nx==1\n-r missing.txt\n-r https://example.com/r\n",
        "base.txt": "--requirement=app/limits.txt\n-r base.txt\ny\n",
        "app/limits.txt": "z<3\n",
    }
    found = (await needs(files, "app")).recipe.files
    renamed = {content: name for name, content in found.items() if name != "requirements.txt"}
    limits = renamed[b"z<3\n"]
    base = next(name for content, name in renamed.items() if content.endswith(b"y\n"))
    assert found[base] == f"--requirement {limits}\n-r {base}\ny\n".encode()
    assert found["requirements.txt"] == (
        f"-r {base}\n-c {limits}  # not more\nx==1\n-r missing.txt\n-r https://example.com/r\n".encode()
    )


@pytest.mark.parametrize(
    ("files", "python"),
    [
        ({".python-version": "# ours\n3.12\n", "pyproject.toml": "[project]\nrequires-python = '>=3.10'"}, "3.12"),
        ({"pyproject.toml": "[project]\nrequires-python = '>=3.10'"}, ">=3.10"),
        ({"pyproject.toml": "[tool.x]"}, None),
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
        python="3.12", files={"requirements.txt": b"x\n"}, packages=("y",)
    )
