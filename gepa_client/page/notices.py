"""What a reader needs first, in words: that a run is lost, stuck, waiting or stopped, why, and what to do."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from evolverpc_common.display_text import command, counted, duration, one_line, seconds_since
from gepa_client.page.page_events import CommandHint, FailureCounts, LongInFlight, Notice, Now, Run
from gepa_client.page.stuck_examples import stuck_s
from gepa_client.run.run_counters import LONG_S


@dataclass(frozen=True)
class NoticeInput:
    """A run as it stands. `seed_failed`: the program failed on all rows of the seed; `store`: what commands call it."""

    run: Run
    now: Now
    failures: FailureCounts | None
    seed_failed: bool
    store: str | None

    def notices(self) -> list[Notice]:
        """Return what is to be stated, the cause before its effects."""
        if not self.run.driven:
            return [*self._stopped()]
        return [self._lost()] if self.now.lost else [*self._waits()]

    def _command(self, name: str, what: str, *words: str) -> CommandHint:
        return CommandHint(command=command(name, self.run.run_id, *words, store=self.store), what=what)

    def _lost(self) -> Notice:
        resume = self._command("resume", "continue the run, once its lease has ended")
        return Notice(
            kind="lost",
            title="The optimizer sends no heartbeat",
            text=["Its process was killed, or it is cut off from the store. All results are kept."],
            commands=[resume, *self.run.commands],
        )

    def _waits(self) -> Iterator[Notice]:
        run, now = self.run, self.now
        if now.waiting_for is not None:
            again = "Start a server again at its address: the run continues by itself, without a command."
            since = seconds_since(now.waiting_since or now.last_result or "")
            yield _wait("a server that answers", since, one_line(now.waiting_for), again)
        reflecting = None if now.reflecting_since is None else seconds_since(now.reflecting_since)
        is_reflecting = reflecting is not None and reflecting >= LONG_S
        if is_reflecting:
            model = run.reflection_model
            proposer = "new texts of the program" if model is None else f"an answer of the model {one_line(model, 100)}"
            yield _wait(
                proposer, reflecting, *([f"It is to change {', '.join(now.reflecting)}."] if now.reflecting else [])
            )
        quiet = stuck_s(self.now) or now.no_result_s or 0.0
        if stuck_s(self.now) is not None or (
            now.in_flight and quiet >= LONG_S and not is_reflecting and now.waiting_for is None
        ):
            yield self._no_result(quiet)
        elif now.phase == "connecting" and now.waiting_for is None:
            yield _wait("its servers to answer", seconds_since(run.started or ""))

    def _no_result(self, quiet: float) -> Notice:
        """Return what is in flight, and what to do if it is stuck."""
        now, is_stuck = self.now, stuck_s(self.now) is not None
        text: list[str] = []
        if now.longest:
            listed = ", ".join(f"{_example(each)} for {duration(each.seconds)}" for each in now.longest)
            servers = ", ".join(dict.fromkeys(each.endpoint for each in now.longest if each.endpoint))
            limit = now.longest[0].limit_s
            score = self.run.settings.get("failure_score") or 0
            text.append(f"In flight longest: {listed}{f'; at {servers}' if servers else ''}.")
            text.append(
                "No time limit ends them."
                if limit is None
                else f"The server ends each after {duration(limit)}, as a time-out, which counts as {score:g}."
            )
        if is_stuck:
            text.append("Find out what the program waits for on these rows; a time-out shows the line.")
            text.append(
                "If it answers again, the run continues by itself; else pause the run, fix the program, start its "
                "server again, with a shorter --example-timeout-s if there are many, and resume the run."
            )
        before = f"; {now.timeouts:,} timed out before" if now.timeouts else ""
        return Notice(
            kind="stuck" if is_stuck else "waiting",
            title=f"No result for {duration(quiet)}: {counted(now.in_flight or 0, 'example')} in flight{before}",
            text=text,
            commands=self.run.commands if is_stuck else [],
        )

    def _stopped(self) -> Iterator[Notice]:
        run, failures = self.run, self.failures
        if run.status not in ("failed", "paused", "running"):
            return
        named = "running, but no process drives it" if run.status == "running" else run.status
        text = [one_line(run.reason.partition("\n")[0])] if run.reason else []
        commands = run.commands
        if run.status != "running" and failures is not None and failures.failed:
            steps, commands = self._after_failures(failures)
            text += steps
        yield Notice(kind="stopped", title=f"The run is {named}", text=text, commands=commands)

    def _after_failures(self, failures: FailureCounts) -> tuple[list[str], list[CommandHint]]:
        """Return what to do about a program that failed on examples: first the program, then its recorded failures."""
        run = self.run
        first = next((group for group in failures.groups if group.traceback), failures.groups[0])
        fix = (
            f"Fix the program: {failures.failed:,} of {failures.evaluated:,} examples failed, first with "
            f"{one_line(first.type, 80)}: {one_line(first.message, 200)}. "
            "Start its server again."
        )
        if self.seed_failed:
            stays = "its recorded failures stay in this one, also if it is resumed"
            return [fix, f"Then start a new run: the seed failed, and {stays}."], run.commands
        score = run.settings.get("failure_score") or 0
        resumed = (
            f"resume the run: the {failures.failed:,} recorded failures count as {score:g} also after the fix, and "
            "only examples without a result are evaluated; a new run, or a fork from before them, scores them again"
        )
        commands = [
            each.model_copy(update={"what": resumed}) if " resume " in each.command else each for each in run.commands
        ]
        return [fix], commands


def _wait(what: str, seconds: float | None, *text: str) -> Notice:
    lasting = "" if seconds is None else f", for {duration(seconds)}"
    return Notice(kind="waiting", title=f"Waits for {what}{lasting}", text=list(text), commands=[])


def _example(each: LongInFlight) -> str:
    """Return `val 7 with candidate 2`; a text that is in no pool goes by the beginning of its digest."""
    kind = "candidate" if re.fullmatch(r"\d{1,6}", each.candidate) else "proposal"
    row = each.row if " " in each.row else f"row {each.row}"
    return f"{one_line(row, 60)} with {kind} {each.candidate}"
