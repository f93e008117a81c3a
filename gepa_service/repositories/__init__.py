"""Repositories of tenants: which may be reached, how their access is tested, deliveries to them, and the GitHub App."""
