/** That no result arrives, of which rows at which server, what the program waits at, and what to do: on every view. */

import { Commands } from "../parts/commands";
import { exampleAge } from "../parts/example-age";
import { count, counted, duration, score, time } from "../parts/format";
import { CandidateLink, rowName } from "../parts/row-name";
import { Inline } from "../parts/text";
import { sameRun } from "../state/command";
import { failedAt, failureScoreOf } from "../state/failed-rows";
import { type Stall, shorterLimit } from "../state/stall";
import type { View } from "../state/view";

export function Stuck({ view, stall }: { view: View; stall: Stall }) {
  const { seconds, since, inFlight, timeouts, recorded, longest } = stall;
  const { failures, now } = view.latest;
  const servers = [...new Set(longest.flatMap(({ endpoint }) => endpoint ?? []))];
  const first = longest[0];
  return (
    <section class="notices" aria-label="No result">
      <p>
        <strong>
          No result for {duration(seconds)}: {counted(inFlight, "example waits", "examples wait")}
          {timeouts > 0 && `; ${count(timeouts)} timed out before ${inFlight === 1 ? "it" : "them"}`}.
        </strong>{" "}
        {since === null
          ? "No example has brought a result yet."
          : `The last example${timeouts > 0 ? " that did not time out" : ""} finished at ${time(since)}.`}
        {recorded !== undefined &&
          failures !== undefined &&
          ` In the whole run ${count(recorded.count)} of ${counted(failures.evaluated, "example")} timed out.`}
      </p>
      {first !== undefined && (
        <p>
          {inFlight > longest.length ? "Among them" : "They are"}{" "}
          {longest.map(({ row, candidate, seconds }, at) => (
            <span key={at}>
              {at > 0 && ", "}
              <Inline text={rowName(row)} length={60} /> with <CandidateLink name={candidate} view={view} /> (
              {now === undefined ? duration(seconds) : exampleAge(now, seconds)})
            </span>
          ))}
          {servers.length > 0 && (
            <>
              {" "}
              at the server{servers.length > 1 && "s"} <Inline as="code" text={servers.join(", ")} length={300} />
            </>
          )}
          .{" "}
          {first.limit_s === null
            ? "No time limit ends them."
            : `The server ends each example after ${duration(first.limit_s)}, as a time-out, which counts as ${score(failureScoreOf(view.latest.run))}.`}
        </p>
      )}
      <WhatToDo view={view} stall={stall} />
    </section>
  );
}

function WhatToDo({ view, stall: { recorded, longest } }: { view: View; stall: Stall }) {
  const commands = view.latest.run?.commands ?? [];
  const place = failedAt(recorded?.traceback ?? "");
  const limit = shorterLimit(view);
  const hints = [
    ["pause", "", "stop the run for now"],
    ["resume", limit === null ? "" : `--example-timeout-s ${limit}`, resumeHint(limit, view.latest.now?.usual_s)],
    ["cancel", "", "stop the run and mark it as cancelled; its results are kept"],
  ].flatMap(([name = "", flags, what = ""]) => {
    const command = sameRun(name, commands, flags);
    return command === undefined ? [] : [{ command, what }];
  });
  return (
    <details open>
      <summary>What to do</summary>
      <p>
        {place === null ? (
          <>
            Find out what the program waits for on these rows
            {longest[0]?.limit_s != null && " (once an example times out, this page shows the line)"}.
          </>
        ) : (
          <>
            The first example that timed out waited at{" "}
            <code>
              <Inline text={place.file} length={200} />, line {place.line}
              {place.code !== "" && (
                <>
                  : <Inline text={place.code} length={120} />
                </>
              )}
            </code>
            : find out what does not answer there.
          </>
        )}{" "}
        If it answers again, the run continues by itself. Else{" "}
        {hints.length > 0
          ? "pause the run, fix the program, start its server again, and resume it:"
          : "stop the run and fix the program."}
      </p>
      <Commands commands={hints} />
    </details>
  );
}

function resumeHint(limit: number | null, usual: number | null | undefined): string {
  if (limit === null) return "continue it";
  const took = (usual ?? 0) < 0.001 ? "less than 1 ms" : duration(usual);
  return `continue it; an example then times out after ${limit} s (so far examples took ${took} on average)`;
}
