"""What a worker and its zygote agree on."""

MESSAGE_BYTES = 64 << 10
STREAMS = 3
"""The descriptors of a request: standard input, output and error."""

FORKED = b"forked"
"""The answer, with the descriptor of the process; any other text is the reason why there is none."""

MODULES = (
    "gepa_service.jobs.job_main",
    "gepa_service.jobs.job_process",
)
"""What the zygote imports."""

ISOLATED_MODULES = (
    "gepa_service.jobs.isolated_driver",
    "gepa_service.jobs.forked_daemons",
    "gepa_client.run.driver_main",
    "gepa_client.run.driver",
    "rpc_server.cli.serve",
)
"""What it imports besides if containers are made: also what runs in them."""
