"""A Modal on loopback, on the stubs that Modal's own package ships: sandboxes that really run, and faults on demand."""

from tests.support.modal_cloud.cloud import Cloud, found_by_this_process, loopback_modal, loopback_modal_beside

__all__ = ["Cloud", "found_by_this_process", "loopback_modal", "loopback_modal_beside"]
