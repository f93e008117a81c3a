"""Commands of users and agents, run until all of their processes have ended."""
