"""What a reader needs first, in words: that a run is lost, stuck, waiting or stopped, why, and what to do."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from evolverpc_common.display_text import command, counted, duration, line, seconds_since
from gepa_client.page.moment_events import CommandHint, FailureCounts, LongInFlight, Notice, Now, Run

LONG_S = 10.0
"""Seconds from which on a wait is stated: shorter ones are the pace of the work."""

STUCK_FACTOR = 10
"""How much longer than usual an example takes that is stuck."""

STUCK_S, UNKNOWN_S = 30.0, 120.0
"""Seconds that examples wait at least before they are stuck, and if nothing is known of how long they take."""

REPEATED, REPEATED_S = 2, 10.0
"""After so many time-outs, examples that wait for so long are stuck; at once if nothing else came between them."""

LEAST_LIMIT_S = 10
"""The least limit of an example that is suggested."""


@dataclass(frozen=True)
class Situation:
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
        if self.now.lost:
            return [self._lost()]
        stuck = [self._stuck()] if self.stuck_s is not None else []
        return [*stuck, *self._waits(is_stuck=bool(stuck))]

    @property
    def stuck_s(self) -> float | None:
        """Seconds without a result other than time-outs, if examples wait longer than they usually take."""
        now = self.now
        if now.lost or now.waiting_for is not None or not now.in_flight:
            return None
        waited = now.longest[0].seconds if now.longest else 0.0
        quiet = waited if now.no_result_s is None else now.no_result_s
        if now.timeouts >= REPEATED:
            return quiet if quiet >= REPEATED_S else None
        usual = UNKNOWN_S if now.usual_s is None else STUCK_FACTOR * now.usual_s
        enough = max(usual, REPEATED_S if self._timed_out >= REPEATED else STUCK_S)
        return quiet if min(quiet, waited) >= enough else None

    @property
    def _timed_out(self) -> int:
        groups = self.failures.groups if self.failures is not None else ()
        return sum(group.count for group in groups if group.status == "timeout")

    def _command(self, name: str, what: str, *words: str) -> CommandHint:
        return CommandHint(command=command(name, self.run.run_id, *words, store=self.store), what=what)

    def _lost(self) -> Notice:
        resume = self._command("resume", "continue the run, once its lease has ended")
        known = any(" resume " in each.command for each in self.run.commands)
        return Notice(
            kind="lost",
            title="The optimizer sends no heartbeat",
            text=["Its process was killed, or it is cut off from the store. All results are kept."],
            commands=[*([] if known else [resume]), *self.run.commands],
        )

    def _stuck(self) -> Notice:
        now, failures = self.now, self.failures
        count = now.in_flight or 0
        before = f"; {now.timeouts:,} timed out before {'it' if count == 1 else 'them'}" if now.timeouts else ""
        text = ["No example has brought a result yet."] if now.last_result is None else []
        if failures is not None and self._timed_out:
            text.append(f"In the whole run {self._timed_out:,} of {failures.evaluated:,} examples timed out.")
        if now.longest:
            listed = ", ".join(f"{_example(each)} for {duration(each.seconds)}" for each in now.longest)
            servers = ", ".join(dict.fromkeys(each.endpoint for each in now.longest if each.endpoint))
            text.append(f"{'In flight longest' if count > len(now.longest) else 'In flight'}: {listed}.")
            text += [f"The server that has them: {servers}."] if servers else []
            limit = now.longest[0].limit_s
            score = self.run.settings.get("failure_score") or 0
            ends = f"The server ends each example after {duration(limit)}, as a time-out, which counts as {score:g}."
            text.append("No time limit ends them." if limit is None else ends)
        waits = (
            next((each.traceback for each in failures.groups if each.status == "timeout"), None) if failures else None
        )
        if (place := failed_at(waits or "")) is not None:
            text.append(f"The first example that timed out waited at {place}: find out what does not answer there.")
        else:
            text.append("Find out what the program waits for on these rows; a time-out shows the line.")
        text.append(
            "If it answers again, the run continues by itself; else pause the run, fix the program, start its server "
            "again, and resume the run."
        )
        return Notice(
            kind="stuck",
            title=f"No result for {duration(self.stuck_s)}: {counted(count, 'example')} in flight{before}",
            text=text,
            commands=[
                self._command("pause", "stop the run for now"),
                self._resume_with_limit(),
                self._command("cancel", "stop the run and mark it as cancelled; its results are kept"),
            ],
        )

    def _resume_with_limit(self) -> CommandHint:
        """Return the command that continues the run, with a shorter limit if usual examples end within one."""
        usual = self.now.usual_s
        if usual is not None:
            limit = max(LEAST_LIMIT_S, math.ceil(STUCK_FACTOR * usual))
            given = self.now.longest[0].limit_s if self.now.longest else None
            if given is None or limit < given:
                took = f"so far examples took {usual:.2g} s on average"
                what = f"continue it; an example then times out after {limit} s ({took})"
                return self._command("resume", what, "--example-timeout-s", str(limit))
        return self._command("resume", "continue it")

    def _waits(self, *, is_stuck: bool) -> Iterator[Notice]:
        run, now = self.run, self.now
        others = is_stuck
        if now.waiting_for is not None:
            others = True
            again = "Start a server again at its address: the run continues by itself, without a command."
            since = seconds_since(now.waiting_since or now.last_result or "")
            yield _wait("a server that answers", since, line(now.waiting_for), again)
        reflecting = None if now.reflecting_since is None else seconds_since(now.reflecting_since)
        if reflecting is not None and reflecting >= LONG_S:
            others = True
            model = run.reflection_model
            proposer = "new texts of the program" if model is None else f"an answer of the model {line(model, 100)}"
            yield _wait(
                proposer, reflecting, *([f"It is to change {', '.join(now.reflecting)}."] if now.reflecting else [])
            )
        if others:
            return
        quiet = now.no_result_s or 0.0
        if now.in_flight and quiet >= LONG_S:
            ends = []
            if now.longest:
                first = now.longest[0]
                limit = (
                    "no time limit ends it"
                    if first.limit_s is None
                    else f"its server ends it after {duration(first.limit_s)}"
                )
                ends = [f"Longest: {_example(first)}, for {duration(first.seconds)}; {limit}."]
            yield _wait(f"{counted(now.in_flight, 'example')} in flight", quiet, *ends)
        elif now.phase == "connecting":
            yield _wait("its servers to answer", seconds_since(run.started or ""))

    def _stopped(self) -> Iterator[Notice]:
        run, failures = self.run, self.failures
        if run.status not in ("failed", "paused", "running"):
            return
        named = "running, but no process drives it" if run.status == "running" else run.status
        text = [line(run.reason.partition("\n")[0])] if run.reason else []
        commands = run.commands
        if run.status != "running" and failures is not None and failures.failed:
            steps, commands = self._after_failures(failures)
            text += steps
        yield Notice(kind="stopped", title=f"The run is {named}", text=text, commands=commands)

    def _after_failures(self, failures: FailureCounts) -> tuple[list[str], list[CommandHint]]:
        """Return what to do about a program that failed on examples: first the program, then its recorded failures."""
        run = self.run
        first = next((group for group in failures.groups if group.traceback), failures.groups[0])
        place = failed_at(first.traceback or "")
        fix = (
            f"Fix the program: {failures.failed:,} of {failures.evaluated:,} examples failed, first with "
            f"{line(first.type, 80)}: {line(first.message, 200)}{f' in {place}' if place else ''}. "
            "Start its server again."
        )
        if self.seed_failed:
            stays = "its recorded failures stay in this one, also if it is resumed"
            return [fix, f"Then start a new run: the seed failed, and {stays}."], run.commands
        score = run.settings.get("failure_score") or 0
        resumed = (
            f"resume the run: the {failures.failed:,} recorded failures count as {score:g} also after the fix, and "
            "only examples without a result are evaluated"
        )
        commands = [
            each.model_copy(update={"what": resumed}) if " resume " in each.command else each for each in run.commands
        ]
        if failures.first is not None:
            again = (
                f"or score them again: this fork is a new run that begins with the {failures.first:,} entries recorded "
                "before the first failure; it prints the command that starts it, and gets no certificate"
            )
            commands.insert(1, self._command("fork", again, "--at", str(failures.first)))
        return [fix], commands


def _wait(what: str, seconds: float | None, *text: str) -> Notice:
    lasting = "" if seconds is None else f", for {duration(seconds)}"
    return Notice(kind="waiting", title=f"Waits for {what}{lasting}", text=list(text), commands=[])


def _example(each: LongInFlight) -> str:
    """Return `val 7 with candidate 2`; a text that is in no pool goes by the beginning of its digest."""
    kind = "candidate" if re.fullmatch(r"\d{1,6}", each.candidate) else "proposal"
    row = each.row if " " in each.row else f"row {each.row}"
    return f"{line(row, 60)} with {kind} {each.candidate}"


def failed_at(traceback: str) -> str | None:
    """Return the file, the line and its code of the last frame of the first Python traceback in a text."""
    first = re.split(r"^(?:During handling|The above exception)", traceback, flags=re.MULTILINE)[0]
    frames = re.findall(r'^\s*File "([^"\n]+)", line (\d+)[^\n]*(?:\n +(?!File ")([^\n]+))?', first, re.MULTILINE)
    if not frames:
        return None
    file, number, code = frames[-1]
    return f"{line(file, 200)}, line {number}{f': {line(code, 120)}' if code else ''}"
