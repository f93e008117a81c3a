"""The journal of a run: every answer that GEPA got, in the order of its requests, in a durable store."""

from gepa_client.journal.entries import CandidateRecord, Claim, Entry, Spending, StoredRun
from gepa_client.journal.store import Store, default_store, find_run, open_store

__all__ = [
    "CandidateRecord",
    "Claim",
    "Entry",
    "Spending",
    "Store",
    "StoredRun",
    "default_store",
    "find_run",
    "open_store",
]
