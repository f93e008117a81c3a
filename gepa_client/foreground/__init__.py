"""What a process does that starts runs: it checks the program, drives the run in another process, and shows it."""
