"""Check a program, and drive and display its run, for the command, program or service that starts it."""
