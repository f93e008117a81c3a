"""The exit statuses that every command shares; those of a run are in `summary`."""

USAGE = 2
"""It was asked for what cannot be."""

PAUSED = 3
"""The infrastructure failed; the same command can succeed later."""

STOPPED = 130
"""It was stopped by hand."""
