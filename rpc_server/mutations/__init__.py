"""Changes to a candidate: the agents that make them, and the transaction around them."""
