"""Read a recorded run: its result, failures, Pareto fronts and rescoring."""
