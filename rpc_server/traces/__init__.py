"""Trajectories that stay on the server, by reference."""
