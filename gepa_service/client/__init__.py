"""A client of a service, typed by the models of its API: `ServiceClient(url, key).optimize(OptimizeRequest(...))`."""

from gepa_service.client.operations import ServiceClient, ServiceProblem, ServiceUnreachable

__all__ = ["ServiceClient", "ServiceProblem", "ServiceUnreachable"]
