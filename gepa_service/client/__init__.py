"""A client of a service, typed by the models of its API: `ServiceClient(url, key).optimize(OptimizeRequest(...))`."""

from gepa_service.client.connection import ServiceProblem, ServiceUnreachable
from gepa_service.client.operations import ServiceClient

__all__ = ["ServiceClient", "ServiceProblem", "ServiceUnreachable"]
