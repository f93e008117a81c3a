"""Cannot be imported."""

print("importing")

import a_package_that_does_not_exist  # noqa: E402, F401
