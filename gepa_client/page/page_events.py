"""What the page of a run receives: facts with their place in the journal, one JSON object each.

`at` is a place in the part `search` of the journal: how many of its numbers GEPA had requested. The page at N is the
state by all facts with `at` <= N, in any order of arrival: what `evolverpc replay --until N` shows. Facts that
are not of the search (`run`, `now`, `spending`, ...) have no `at`; a later one replaces an earlier one of its `type`,
unless its class states another rule.
"""

from typing import Annotated

from pydantic import Field

from gepa_client.page.ending_events import (
    CertificateFound,
    Copied,
    FinishedRun,
    LeaksFound,
    ScoreOnTestRows,
    SealedRows,
    Stopped,
    Summary,
    Ties,
)
from gepa_client.page.moment_events import (
    FailureCounts,
    Now,
    Position,
    Run,
    RunWarning,
    SpendingSoFar,
    Steer,
    StoreTrouble,
)
from gepa_client.page.search_events import (
    Candidate,
    Iteration,
    MetricCalls,
    Mutation,
    PoolState,
    Proposal,
    Race,
    Reflection,
    Results,
    Rows,
)

PageEvent = (
    Run
    | Rows
    | Candidate
    | PoolState
    | MetricCalls
    | Proposal
    | Iteration
    | Results
    | Reflection
    | Mutation
    | Race
    | Steer
    | RunWarning
    | FailureCounts
    | SpendingSoFar
    | SealedRows
    | Ties
    | ScoreOnTestRows
    | CertificateFound
    | LeaksFound
    | Copied
    | Stopped
    | FinishedRun
    | Summary
    | Now
    | Position
    | StoreTrouble
)

AnyPageEvent = Annotated[PageEvent, Field(discriminator="type")]
