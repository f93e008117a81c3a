/** What the run does at this moment. */

import type { Now } from "../generated/events";
import { Facts } from "../parts/facts";
import { count, counted, duration, score, time } from "../parts/format";
import { CandidateLink, rowName } from "../parts/row-name";
import { Inline } from "../parts/text";
import type { View } from "../state/view";

/** Seconds without a result from which on the page states it. */
const QUIET_S = 10;

export function Activity({ view, now }: { view: View; now: Now }) {
  const quiet = now.last_result !== null && (now.no_result_s ?? 0) >= QUIET_S && (
    <strong class="warn">
      since {time(now.last_result)} ({duration(now.no_result_s)})
    </strong>
  );
  return (
    <section class="panel">
      <h2>At this moment</h2>
      <Facts
        facts={[
          ["phase", now.phase ?? "unknown"],
          ["iteration", now.iteration !== null && count(now.iteration)],
          ["examples in flight", count(now.in_flight)],
          ["no result", quiet],
          [
            "examples per second",
            now.rate === null ? "unknown" : now.rate === 0 ? "nothing finishes" : score(now.rate),
          ],
          ["waiting for a free server", counted(now.waiting ?? 0, "call")],
          [
            "reflecting",
            now.reflecting_since !== null &&
              `on ${now.reflecting.join(", ") || "the program"} since ${time(now.reflecting_since)}`,
          ],
          ["last heartbeat", now.beat_age_s === null ? "none" : `${duration(now.beat_age_s)} ago`],
        ]}
      />
      {now.longest.length > 0 && (
        <>
          <h3>In flight longest</h3>
          <ul>
            {now.longest.map(({ row, candidate, seconds, limit_s }, at) => (
              <li key={at}>
                <Inline text={rowName(row)} length={80} /> with <CandidateLink name={candidate} view={view} />: for{" "}
                {duration(seconds)},{" "}
                {limit_s === null ? "which nothing limits" : `its server ends this example after ${duration(limit_s)}`}
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}
