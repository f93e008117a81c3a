"""What the page of a run receives: facts with their place in the journal, one JSON object each.

`at` is a place in the part `search` of the journal: how many of its numbers GEPA had requested. The page at N is the
state by all facts with `at` <= N: what `evolverpc replay --until N` shows. Facts that
are not of the search (`run`, `now`, `spending`, ...) have no `at`; a later one replaces an earlier one of its kind,
unless its class states another rule, or `event_log.KEYS`.
"""

from typing import Annotated

from pydantic import Field

from gepa_client.journal import run_events
from gepa_client.page.moment_events import (
    CertificateFound,
    FailureCounts,
    Notices,
    Now,
    Position,
    Run,
    SpendingSoFar,
    Steer,
    StoreTrouble,
    Summary,
)
from gepa_client.page.search_events import (
    Candidate,
    Mutation,
    Proposal,
    Results,
    Rows,
)

PageEvent = (
    Run
    | Rows
    | Candidate
    | run_events.Steered
    | Proposal
    | run_events.Budget
    | Results
    | Mutation
    | Steer
    | run_events.Warned
    | FailureCounts
    | SpendingSoFar
    | run_events.TiesCompared
    | CertificateFound
    | Summary
    | Now
    | Notices
    | Position
    | StoreTrouble
)

AnyPageEvent = Annotated[PageEvent, Field(discriminator="event")]
