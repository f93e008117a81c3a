"""Cannot be imported."""

print("importing")

import a_package_that_nobody_has  # noqa: E402, F401
