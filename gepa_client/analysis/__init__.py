"""Read a recorded run: its result, its proposals, what failed, why its best candidate is better; statistics of scores."""
