"""Install Python packages with uv, for an interpreter that a recipe accepts."""

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from evolverpc_common.build_cache import CHECKOUT, VENV, BuiltEnvironment
from evolverpc_common.python_package_managers import find_uv, tool_variables
from sandbox_runtime.api.sandbox import EnvironmentMissing, RuntimeUnavailable
from sandbox_runtime.api.spec import Recipe
from sandbox_runtime.environments.build_folder import BuildFolder, run_quietly

OLDEST = ">=3.8"
"""The version if a recipe has Python packages and names none: all that can serve a program."""

_VERSION = r"\d+(\.\d+)*(a|b|rc)?\d*(\.\*)?"
_REQUEST = re.compile(
    rf"((cpython|pypy|graalpy)[-@]?)?{_VERSION}|((===?|!=|~=|[<>]=?)\s*{_VERSION})(\s*,\s*(===?|!=|~=|[<>]=?)\s*{_VERSION})*,?"
)


def wants_python(recipe: Recipe) -> bool:
    """Return whether the recipe needs Python."""
    return recipe.python is not None or bool(recipe.packages) or recipe.install is not None


async def install_python(recipe: Recipe, site: BuildFolder) -> BuiltEnvironment:
    """Make a virtual environment and install the recipe's packages.

    Raises:
        EnvironmentMissing: there is no such Python, or a package cannot be installed.
        RuntimeUnavailable: uv is not installed.
    """
    uv = uv_program()
    interpreter = await _interpreter(uv, (recipe.python or OLDEST).strip(), site)
    prefix = await _prefix(interpreter)
    venv = site.folder / VENV
    make = [uv, "venv", "--quiet", "--no-project", "--python", interpreter, str(venv)]
    await site.run(make, readable=(uv, str(prefix)))
    mounts = await asyncio.to_thread(_mounts, prefix, interpreter, venv)  # only uv has run here so far
    python, readable = str(venv / "bin" / "python"), (uv, *mounts, sys.base_prefix)
    env = tool_variables(venv, uv, os.defpath)
    import_paths: tuple[str, ...] = ()

    async def run(command: list[str], folder: Path) -> str:
        return await site.run(command, env=env, readable=readable, cwd=folder)

    if recipe.install is not None:
        site.on_progress(f"installing {recipe.install.described}")
        top = await site.check_out(recipe.checkout, VENV)
        import_paths = await recipe.install.run(top, uv, python, run)
        replace = ("sh", "-ec", 'rm -rf "$0"; ln -s "$1" "$0"', str(top), CHECKOUT)
        await site.run(replace, readable=())  # what is linked then leads to each sandbox's own files
    if recipe.packages:
        site.on_progress(f"installing {' and '.join(recipe.packages)}")
        added = ("pip", "install", "--quiet", "--no-config", "--python", python, "--", *recipe.packages)
        await site.run((uv, *added), env=env, readable=readable)
    return BuiltEnvironment(
        python=python,
        path=(str(venv / "bin"),),
        mounts=(str(site.folder), *mounts),
        env={"VIRTUAL_ENV": str(venv)},
        import_paths=import_paths,
    )


def uv_program() -> str:
    """Return the installed uv, else one on the PATH. Raises `RuntimeUnavailable`."""
    found = find_uv()
    if found is None:
        raise RuntimeUnavailable(
            "there is no uv to build environments with: run pip install '.[sandbox]' in the folder of evolverpc"
        )
    return found


async def _interpreter(uv: str, wanted: str, site: BuildFolder) -> str:
    """Return a Python of this machine that is accepted, else one that uv fetches."""
    if not _REQUEST.fullmatch(wanted):
        raise EnvironmentMissing(
            f"{wanted!r} is not a version of Python: write a version, `3.12`, or a range, `>=3.10,<3.14`"
        )
    find = [uv, "python", "find", "--no-project", "--system", "--no-python-downloads", wanted]
    environ = _finding(os.environ)
    status, found = await run_quietly(find, site.folder, environ)
    if status != 0:
        site.on_progress(f"fetching Python {wanted}, which is not on this machine")
        install = [uv, "python", "install", "--quiet", "--no-bin", wanted]
        status, why = await run_quietly(install, site.folder, environ)
        if status == 0:
            status, found = await run_quietly(find, site.folder, environ)
        if status != 0:
            raise EnvironmentMissing(
                f"there is no Python {wanted} on this machine, and uv cannot fetch it: install one, or put it on PATH\n"
                f"{why[-2000:]}"
            )
    return await asyncio.to_thread(os.path.realpath, found.strip())


def _finding(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables with which uv finds the Pythons of this machine and of pyenv, and no virtual environment."""
    environ = {
        name: value for name, value in environ.items() if name not in {"VIRTUAL_ENV", "UV_PYTHON", "CONDA_PREFIX"}
    }
    pyenv = Path(environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    shims = str(pyenv / "shims")
    folders = [folder for folder in environ.get("PATH", os.defpath).split(os.pathsep) if folder != shims]
    kept = sorted(map(str, pyenv.glob("versions/*/bin")), reverse=True)
    return environ | {"PATH": os.pathsep.join([*folders, str(Path(sys.base_prefix) / "bin"), *kept])}


async def _prefix(interpreter: str) -> Path:
    """Return the folder of its installation."""
    status, output = await run_quietly([interpreter, "-I", "-c", "import sys; print(sys.base_prefix)"], Path("/"), {})
    prefix = Path(output.strip())
    if status != 0 or not prefix.is_absolute():
        raise EnvironmentMissing(f"{interpreter} does not run: {output}")
    if is_too_wide(prefix):
        raise EnvironmentMissing(
            f"{interpreter} is installed in {prefix} itself, all of which a sandbox would see: use another Python"
        )
    return prefix


def _mounts(prefix: Path, interpreter: str, venv: Path) -> tuple[str, ...]:
    """Return the folders of it and of links to it, outside `/usr`. Blocks."""
    links = (Path(interpreter), (venv / "bin" / "python").readlink())
    found = (prefix, *(link.parents[1] for link in links if link.is_absolute()))
    return tuple(dict.fromkeys(str(folder) for folder in found if not is_system(folder) and not is_too_wide(folder)))


def is_system(folder: Path) -> bool:
    """Return whether the folder exists in every sandbox."""
    return folder == Path("/") or folder.is_relative_to("/usr")


def is_too_wide(folder: Path) -> bool:
    """Return whether the folder contains the user's home, which no sandbox may see."""
    return Path.home().is_relative_to(folder)
