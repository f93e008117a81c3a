"""Steering: what users ask of a run while it runs, recorded as entries of its journal."""
