"""`python -m gepa_client` is `gepa-client`."""

from gepa_client.cli import main

if __name__ == "__main__":
    main()
