"""`python -m gepa_service.cli`: the command `evolverpc service` of this interpreter."""

from gepa_service.cli.app import main

main()
