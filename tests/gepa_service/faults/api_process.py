"""The API in a process that may be killed: `python -m tests.gepa_service.faults.api_process PORT RECORDS JOURNALS`."""

import sys

import uvicorn

from gepa_service.api.app import create_app
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.auth.oidc import OidcTokens
from gepa_service.auth.recognize import Recognizer
from gepa_service.records.open_records import open_records
from tests.gepa_service.platform import MASTER
from tests.gepa_service.serving import service_of

if __name__ == "__main__":
    port, records, journals = sys.argv[1:]
    opened = open_records(records)
    tokens = JobTokens(opened, [MASTER])
    app = create_app(service_of(opened, journals, Recognizer(opened, tokens, OidcTokens([]))))
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error")
