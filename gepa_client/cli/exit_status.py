"""The exit statuses that all commands share; those of a run are in `views.final_summary`."""

DECLINED = 1
"""The user answered no to a question of the command."""

USAGE = 2
"""The command was used wrongly, or asks for something impossible."""

PAUSED = 3
"""The infrastructure failed; the same command can succeed later."""

STOPPED = 130
"""The user stopped the command."""
