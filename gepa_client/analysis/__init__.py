"""Read a recorded run: its result, its proposals, its failures, why its best candidate is better; test scores."""
