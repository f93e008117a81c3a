"""Local Node packages: the links to them, and the order in which they are prepared."""

from pathlib import Path

from evolverpc_common.node_package_managers import link_modules, to_prepare


def write(top: Path, *packages: str) -> None:
    for package in packages:
        (top / package).mkdir(parents=True)
        (top / package / "package.json").write_text("{}")


def test_links_lead_to_the_packages_of_the_commit_and_everything_else_to_what_was_installed(tmp_path: Path) -> None:
    installed, files = tmp_path / "installed", tmp_path / "files"
    modules = "app/node_modules"
    write(installed, "app", "shared", f"{modules}/left", f"{modules}/@scope/right", f"{modules}/.bin")
    write(files, "app", "shared")
    links = {"shared": "../../shared", "@scope/shared": "../../../shared", ".bin/left": "../left/cli.js"}
    for name, target in links.items():
        (installed / modules / name).symlink_to(target)
    assert link_modules(installed, files, "app") == [files / "shared", files / "shared"]
    found = files / modules
    for name, target in links.items():
        assert (found / name).readlink() == Path(target)
    assert (found / "shared").resolve() == files / "shared"
    assert (found / "left").resolve() == installed / modules / "left"
    assert (found / "@scope/right").resolve() == installed / modules / "@scope/right"


def test_a_program_keeps_its_own_packages(tmp_path: Path) -> None:
    installed, files = tmp_path / "installed", tmp_path / "files"
    write(installed, "node_modules/left")
    write(files, "node_modules/own")
    assert link_modules(installed, files, "") == []
    assert [path.name for path in (files / "node_modules").iterdir()] == ["own"]


def test_a_package_is_prepared_after_those_it_depends_on(tmp_path: Path) -> None:
    scripts = '"scripts": {"prepare": "true"}'
    documents = {
        "first": f'{{"name": "a", {scripts}, "dependencies": {{"b": "*"}}}}',
        "second": f'{{"name": "b", {scripts}, "devDependencies": {{"c": "*", "a": "*"}}}}',
        "third": f'{{"name": "c", {scripts}}}',
        "without": '{"name": "d"}',
    }
    for folder, content in documents.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "package.json").write_text(content)
    found = to_prepare([*(tmp_path / folder for folder in documents), tmp_path / "first"])
    assert [folder.name for folder in found] == ["third", "second", "first"]
