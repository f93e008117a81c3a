"""Settings of the server, from a file, the environment and flags."""
