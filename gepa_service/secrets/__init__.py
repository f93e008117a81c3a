"""Secrets of tenants, encrypted at rest."""
