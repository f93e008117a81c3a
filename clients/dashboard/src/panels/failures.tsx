/** The examples that failed in the program, by type. */

import type { FailureGroup } from "../generated/events";
import { candidateOrProposal, count, counted } from "../parts/format";
import { Block, Inline } from "../parts/text";
import type { View } from "../state/view";

export function Failures({ view }: { view: View }) {
  const { failures } = view.latest;
  if (failures === undefined || failures.failed === 0) return null;
  return (
    <section class="panel wide">
      <h2>
        Failed examples: {count(failures.failed)} of {count(failures.evaluated)}
      </h2>
      {failures.groups.map((group, at) => (
        <Failure key={`${group.type} ${at}`} group={group} opened={at === 0} />
      ))}
    </section>
  );
}

function Failure({ group, opened }: { group: FailureGroup; opened: boolean }) {
  return (
    <details open={opened}>
      <summary>
        <strong>
          <Inline text={group.type} />
        </strong>{" "}
        {counted(group.count, "time")}, {group.status === "timeout" ? "timed out" : "raised by the program"}, on{" "}
        {counted(group.row_count, "row")}: <Inline text={group.message} length={160} />
      </summary>
      <p class="quiet">
        Rows <Inline text={group.rows.join(", ")} length={200} />
        {group.row_count > group.rows.length && ` and ${count(group.row_count - group.rows.length)} more`}. By
        candidate:{" "}
        <Inline
          text={Object.entries(group.candidates)
            .map(([name, times]) => `${candidateOrProposal(name)}: ${times}`)
            .join(", ")}
          length={200}
        />
        . The first, of row <Inline text={group.row} /> with <Inline text={candidateOrProposal(group.candidate)} />:
      </p>
      <Block text={group.traceback ?? group.message} label="Traceback" />
      {group.log && (
        <>
          <h3>What the program wrote</h3>
          <Block text={group.log} label="Log" />
        </>
      )}
    </details>
  );
}
