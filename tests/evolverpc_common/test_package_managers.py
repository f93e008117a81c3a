"""The pnpm that installs from a project's manifests."""

import pytest

from evolverpc_common.package_managers import pnpm_package

NINE = b"lockfileVersion: '9.0'\n\nsettings:\n"


@pytest.mark.parametrize(
    ("package", "lock", "found"),
    [
        ('{"packageManager": "pnpm@9.15.9+sha512.ab/c="}', NINE, "pnpm@9.15.9"),
        ('{"packageManager": "pnpm@11.0.0-rc.1"}', b"", "pnpm@11.0.0-rc.1"),
        ("{}", NINE, "pnpm@10"),
        ("[]", b"lockfileVersion: 6.1", "pnpm@8"),
    ],
)
def test_pnpm_is_the_one_that_the_project_names_else_one_that_reads_its_lock(
    package: str, lock: bytes, found: str
) -> None:
    assert (
        pnpm_package({"web/package.json": package.encode(), "web/pnpm-lock.yaml": lock, "web/a/package.json": b""})
        == found
    )


def test_without_a_lock_of_pnpm_npm_installs() -> None:
    assert pnpm_package({"package.json": b'{"packageManager": "pnpm@9.15.9"}', "package-lock.json": b"{}"}) is None


@pytest.mark.parametrize("lock", [b"", b"lockfileVersion: 5.4", b"lockfileVersion: '99.0'"])
def test_a_lock_that_no_known_pnpm_reads_is_named_with_the_next_step(lock: bytes) -> None:
    with pytest.raises(ValueError, match=r'web/pnpm-lock.yaml .* name its pnpm in web/package.json, `"packageManager"'):
        pnpm_package({"web/package.json": b"{}", "web/pnpm-lock.yaml": lock})
