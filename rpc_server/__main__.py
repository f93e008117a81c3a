"""`python -m rpc_server`."""

from rpc_server.cli import main

main()
