"""Who does the work: one endpoint or many, each as busy as it bears."""

from gepa_client.fleet.endpoint import Endpoint
from gepa_client.fleet.endpoints_file import Address, read_roster
from gepa_client.fleet.fleet import Fleet
from gepa_client.fleet.fleet_events import FleetEvent
from gepa_client.fleet.work import Answered, Attempts, NoVerdict, Pin

__all__ = [
    "Address",
    "Answered",
    "Attempts",
    "Endpoint",
    "Fleet",
    "FleetEvent",
    "NoVerdict",
    "Pin",
    "read_roster",
]
