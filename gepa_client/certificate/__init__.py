"""Whether a run improved the program: a statement with its numbers, made and verified from the record alone."""
