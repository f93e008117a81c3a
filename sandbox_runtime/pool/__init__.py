"""Keeps as many sandboxes up as there is work for, and the fleet file that says where they are."""

from sandbox_runtime.pool.events import GaveUp, PoolEvent
from sandbox_runtime.pool.folders import fleet_folder, fleet_folders, sweep_folders
from sandbox_runtime.pool.member import Member, Start
from sandbox_runtime.pool.pool import SandboxPool
from sandbox_runtime.pool.roster import RosterFile

__all__ = [
    "SandboxPool",
    "RosterFile",
    "Member",
    "Start",
    "PoolEvent",
    "GaveUp",
    "fleet_folder",
    "fleet_folders",
    "sweep_folders",
]
