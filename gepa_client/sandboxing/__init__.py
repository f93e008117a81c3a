"""A session of sandboxes: the servers of one run, started from the program's repository and ended with the run."""
