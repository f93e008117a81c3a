"""Where calls go: one endpoint or many, each with as many calls as it accepts."""

from gepa_client.fleet.endpoint import Endpoint, FleetEvent
from gepa_client.fleet.endpoints_file import read_endpoints_file
from gepa_client.fleet.fleet import Fleet
from gepa_client.fleet.slots import Pin
from gepa_client.transport.address import Address

__all__ = ["Address", "Endpoint", "Fleet", "FleetEvent", "Pin", "read_endpoints_file"]
