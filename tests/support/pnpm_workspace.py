"""A pnpm workspace of two packages, one of which depends on the other and on a package of npm's registry."""

import shutil
import socket

import pytest

_INTEGRITY = "sha512-RF0Fw+rO5AMf9MAyaRXI4AV0Ulj5lMHqVxxdSgiVbixSCXoEmmX/jk0CuJw4+3SqroYO9VoUh+HcuJivvtJemA=="
_LOCK = """\
lockfileVersion: '9.0'

settings:
  autoInstallPeers: true
  excludeLinksFromLockfile: false

catalogs:
  default:
    semver:
      specifier: 7.7.2
      version: 7.7.2

importers:

  .: {}

  app:
    dependencies:
      semver:
        specifier: 'catalog:'
        version: 7.7.2
      shared:
        specifier: workspace:*
        version: link:../shared

  shared: {}

packages:

  semver@7.7.2:
    resolution: {integrity: INTEGRITY}
    engines: {node: '>=10'}
    hasBin: true

snapshots:

  semver@7.7.2: {}
""".replace("INTEGRITY", _INTEGRITY)

PNPM_WORKSPACE = {
    "package.json": '{"name": "all", "private": true, "packageManager": "pnpm@9.15.9"}',
    "pnpm-workspace.yaml": "packages:\n  - app\n  - shared\ncatalog:\n  semver: 7.7.2\n",
    "pnpm-lock.yaml": _LOCK,
    "app/package.json": """{"name": "app", "type": "module",
        "dependencies": {"semver": "catalog:", "shared": "workspace:*"}}""",
    "app/ask.js": """import semver from 'semver'; import { word } from 'shared';
        console.log(word, semver.major('7.1.0'));""",
    "shared/package.json": """{"name": "shared", "version": "1.0.0", "type": "module", "main": "made.js",
        "scripts": {"prepare": "cp source.js made.js"}}""",
    "shared/source.js": "export const word = 'local';",
    ".gitignore": "node_modules/\nmade.js\n*.txt\n",
}
"""Its files by path. `node ask.js` in `app` prints `local 7`; `semver` is a command there."""


def _reaches_registry() -> bool:
    try:
        socket.create_connection(("registry.npmjs.org", 443), timeout=5).close()
    except OSError:
        return False
    return True


needs_npm_registry = pytest.mark.skipif(
    shutil.which("npm") is None or not _reaches_registry(),
    reason="there is no npm here, or its registry is out of reach",
)
