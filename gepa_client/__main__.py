"""`python -m gepa_client` is `evolverpc`."""

from evolverpc_common.console_scripts import evolverpc

if __name__ == "__main__":
    evolverpc()
