"""Statistics of scores: pure functions over numbers, with their sources; the standard library only."""
