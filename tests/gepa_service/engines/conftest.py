"""A service whose work a test runs on an engine."""

from tests.gepa_service.jobs.conftest import service

__all__ = ["service"]
