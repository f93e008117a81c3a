"""Mutations: changes of a program's code, the agents that make them, and the transaction around them."""
