/** The examples that failed in the program, by type. */

import { count, counted } from "../parts/format";
import { CandidateLink } from "../parts/row-name";
import { Block, Inline } from "../parts/text";
import type { View } from "../state/view";

/** The share of examples from which on failures come first while a run is driven. */
const MANY = 0.1;

/** Whether the failures of the program are what a reader needs first. */
export function failuresFirst({ latest: { run, failures } }: View): boolean {
  if (run === undefined || failures === undefined || failures.failed === 0) return false;
  const stopped = !run.driven && (run.status === "failed" || run.status === "paused");
  return stopped || failures.failed >= MANY * failures.evaluated;
}

export function Failures({ view }: { view: View }) {
  const { failures } = view.latest;
  if (failures === undefined || failures.failed === 0) return null;
  return (
    <section class="panel wide">
      <h2>
        Failed examples: {count(failures.failed)} of {count(failures.evaluated)}
      </h2>
      {failures.groups.map((group, at) => (
        <details key={`${group.type} ${at}`} open={at === 0}>
          <summary>
            <Inline as="strong" text={group.type} /> {counted(group.count, "time")},{" "}
            {group.status === "timeout" ? "timed out" : "raised by the program"}
            {group.message_count < 2 && (
              <>
                : <Inline text={group.message} length={160} />
              </>
            )}
          </summary>
          <p class="quiet">
            <Inline text={failures.words[at] ?? ""} length={5_000} />. The first, of <Inline text={group.row} /> with{" "}
            <CandidateLink name={group.candidate} view={view} />:
          </p>
          <Block text={group.traceback ?? group.message} label="Traceback" />
          {group.log && (
            <>
              <h3>What the program wrote</h3>
              <Block text={group.log} label="Log" />
            </>
          )}
        </details>
      ))}
    </section>
  );
}
