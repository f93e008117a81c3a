"""What a worker and its zygote agree on."""

MESSAGE_BYTES = 64 << 10
STREAMS = 3
"""The descriptors of a request: standard input, output and error."""

FORKED = b"forked"
"""The answer, with the descriptor of the process; any other text is the reason why there is none."""

MODULES = (
    "gepa_service.jobs.job_main",
    "gepa_service.jobs.job_process",
    "gepa_service.jobs.isolated_driver",
)
"""What the zygote imports."""
