"""One file for each command, and what several of them share: the store, a run in the foreground, a sandbox session."""
