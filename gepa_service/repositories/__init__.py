"""Repositories of tenants: which may be reached, how their access is tested, and the GitHub App."""
