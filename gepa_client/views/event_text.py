"""The events of a run as lines of markup, with all texts of servers and models escaped."""

from evolverpc_common.display_text import counted
from gepa_client.evolution.names import code_label
from gepa_client.journal import run_events as events
from gepa_client.report.proposed_texts import copied_summary, unusable_text
from gepa_client.report.steering_fields import steered_text
from gepa_client.report.summary_fields import refusal_text, rows_summary
from gepa_client.run.run_view import change_origin
from gepa_client.views.calling_program import blocked_hint, where_of
from gepa_client.views.candidate_view import diff_size
from gepa_client.views.console import safe, safe_line

PHASES = {
    "connecting": "connecting",
    "seed": "scoring the seed",
    "replaying": "replaying the journal",
    "optimizing": "optimizing",
    "ties": "comparing the best candidates",
    "testing": "scoring the test rows",
    "finalizing": "calling finalize",
}

REQUEST = 160
"""Characters of a change request that are shown."""


def event_text(event: events.Event) -> str:
    """Return the event as one line of markup; empty if it is not printed."""
    match event:
        case events.Started():
            return (
                f"[bold]{safe_line(event.program)}[/] {safe_line(where_of(event.server))}: {_rows(event)}; "
                f"components {safe_line(', '.join(event.components))}; proposals by {safe_line(event.proposer)}"
            )
        case events.Warned():
            return f"[yellow]warning:[/] {safe(event.message)}"
        case events.Phase(phase="connecting"):
            return ""
        case events.Phase():
            return PHASES[event.phase]
        case events.CandidateFound(index=0):
            return f"the seed scores {event.score:.4g}"
        case events.CandidateFound():
            code = code_label(event.texts)
            runs = f" [dim]({safe_line(code, 100)})[/]" if code is not None else ""
            parents = " and ".join(str(parent) for parent in event.parents)
            best = " [green]best so far[/]" if event.best == event.index else ""
            return f"candidate {event.index} from {parents}: {event.score:.4g}{best}{runs}"
        case events.Rejected(race=events.RacedOut() as race):
            return f"[dim]raced out: {-race.mean:.3g} below the best on {race.compared:,} of {race.rows:,} rows[/]"
        case events.Rejected() if event.is_by_score:
            return f"[dim]proposal not kept: {event.old_score:g} -> {event.new_score:g}, sum over its minibatch[/]"
        case events.Rejected():
            return f"[dim]proposal not kept: {safe_line(event.reason)}[/]"
        case events.NoProposal():
            return f"[dim]iteration {event.iteration}: no proposal: {safe_line(event.reason)}[/]"
        case events.FleetChanged():
            return fleet_text(event)
        case events.MutationStarted():
            return f"change {event.number}, of {change_origin(event)}: {safe_line(event.request, REQUEST)}"
        case events.MutationProgress():
            return f"[dim]change {event.number}: {safe_line(event.message, REQUEST)}[/]"
        case events.Mutated():
            size = diff_size(event.lines_added, event.lines_removed, len(event.files))
            return f"change {event.number} made: {size}: {safe_line(event.summary or event.request, REQUEST)}"
        case events.MutationRejected():
            why = f"at stage {safe_line(event.stage, 20)}: {safe_line(event.reason)}"
            return f"[yellow]change {event.number} rejected[/] {why}"
        case events.StepFailed():
            return f"[red]{safe_line(event.step)} failed:[/] {safe_line(event.message)}"
        case events.RecordsCut():
            cut = f"{event.shortened:,} of {event.records:,} shortened, {event.left_out:,} left out"
            what = f"{safe_line(event.component, 80)}: {cut}, about {event.tokens:,} tokens"
            return f"[yellow]records cut for[/] {what}; to show more, raise {safe_line(event.setting)}"
        case events.UnusableAnswer():
            return f"[yellow]answer not used for[/] {safe_line(unusable_text(event))}"
        case events.CopiedExamples():
            return f"[yellow]copied:[/] {safe_line(copied_summary(event) or '')}"
        case events.Steered():
            return f"[{'yellow' if event.refused else 'bold'}]steered:[/] {safe_line(steered_text(event))}"
        case events.Sealed():
            return f"committed to {counted(event.rows, 'test row')}: {safe_line(event.digest)}"
        case events.TiesCompared():
            best = "the seed" if event.best == 0 else f"candidate {event.best}"
            return f"best of {len(event.candidates)} candidates on {counted(event.rows, 'unused row')}: {best}"
        case events.Tested():
            what = "seed" if event.index == 0 else f"candidate {event.index}"
            times = f", {event.repeats} times each" if event.repeats > 1 else ""
            return f"{what}: {event.score:.4g} on {event.rows} test rows{times}"
        case events.Finalized(error=str()):
            return f"[yellow]finalize failed:[/] {safe_line(event.error or '')}"
        case events.Finalized():
            return f"finalize: {safe_line(event.message)}" if event.message else "finalize was called"
        case events.CallRefused():
            return f"[yellow]refused[/] {safe_line(refusal_text(event))}"
        case (
            events.Budget()
            | events.Progress()
            | events.ProposalBegun()
            | events.ProposalMade()
            | events.ProposalEvaluated()
            | events.ReflectionRetried()
            | events.ModelCalls()
            | events.FailedExamples()
            | events.RetriedExamples()
            | events.Finished()
        ):
            return ""


def _rows(event: events.Started) -> str:
    """Return `40 train, 20 val rows`."""
    summary = rows_summary(event.splits, training_only=event.training_only, sampled=event.sampled)
    return f"rows: {summary}" if event.training_only else f"{summary} rows"


def fleet_text(event: events.FleetChanged) -> str:
    """Return a change of the fleet as markup."""
    where = safe_line(event.url or "", 80)
    detail = f": {safe_line(event.detail)}" if event.detail else ""
    match event.kind:
        case "waiting":
            limit = f" (up to {clock(event.after)})" if event.after is not None else ""
            hint = f"; [bold]{blocked}[/]" if (blocked := blocked_hint(event.detail)) else ""
            return f"[yellow]no server answers, waiting{limit}[/]{detail}{hint}"
        case "resting":
            return f"[yellow]{where} is paused[/]{detail}"
        case "refused" | "warning":
            return f"[yellow]{where or 'the fleet'}[/]{detail}"
        case "joined":
            return f"[dim]{where} joined{detail}[/]"
        case "back":
            return f"[green]{where} is back[/]{detail}"
        case "left":
            return f"{where} has left{detail}"


def clock(seconds: float) -> str:
    """Return `0:42`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
