"""Runs whose program's code evolves: change requests, mutations, their commits and their outcomes."""
