"""Webhooks of tenants: what happened, sent to their own servers, signed and retried."""
