"""Exit statuses of commands; those of a run are in `final_summary`."""

STILL_RUNNING = 1
"""The run had not stopped when the wait for it was over."""

DECLINED = 1
"""The user answered no to a question of the command."""

USAGE = 2
"""The command was used wrongly, or asks for something impossible."""

PAUSED = 3
"""The infrastructure failed, or another command paused the run; the same command can succeed later."""

NOT_MET = 4
"""The certificate lacks the verdict that `--require` asks for."""

STOPPED = 130
"""The user stopped the command, or cancelled its run."""
