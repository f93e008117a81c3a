"""Runs whose program's code evolves: change requests, mutations, their commits and what came of them."""
