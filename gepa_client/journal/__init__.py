"""What a run was told, in the order GEPA asked, kept so that no accident costs it."""

from gepa_client.journal.entries import Attempt, Claim, Ended, Entry, Kept, Sent, Spending, StoredRun
from gepa_client.journal.store import Store
from gepa_client.journal.store_factory import default_store, find_run, open_store
from gepa_client.journal.transfer import export_run, import_run

__all__ = [
    "Attempt",
    "Claim",
    "Ended",
    "Entry",
    "Kept",
    "Sent",
    "Spending",
    "Store",
    "StoredRun",
    "default_store",
    "export_run",
    "find_run",
    "import_run",
    "open_store",
]
