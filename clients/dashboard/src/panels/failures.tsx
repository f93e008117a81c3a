/** The examples that failed in the program, by type. */

import type { FailureGroup } from "../generated/events";
import { count, counted } from "../parts/format";
import { CandidateLink, rowName, rowNames } from "../parts/row-name";
import { Block, Inline } from "../parts/text";
import type { View } from "../state/view";

/** Candidates of a group that are named. */
const CANDIDATES = 12;

export function Failures({ view }: { view: View }) {
  const { failures } = view.latest;
  if (failures === undefined || failures.failed === 0) return null;
  return (
    <section class="panel wide">
      <h2>
        Failed examples: {count(failures.failed)} of {count(failures.evaluated)}
      </h2>
      {failures.groups.map((group, at) => (
        <Failure key={`${group.type} ${at}`} view={view} group={group} opened={at === 0} />
      ))}
    </section>
  );
}

function Failure({ view, group, opened }: { view: View; group: FailureGroup; opened: boolean }) {
  return (
    <details open={opened}>
      <summary>
        <Inline as="strong" text={group.type} /> {counted(group.count, "time")},{" "}
        {group.status === "timeout" ? "timed out" : "raised by the program"}, on {counted(group.row_count, "row")}
        {group.message_count > 1 ? (
          `, with ${counted(group.message_count, "different message")}`
        ) : (
          <>
            : <Inline text={group.message} length={160} />
          </>
        )}
      </summary>
      <p class="quiet">
        On <Inline text={rowNames(group.rows)} length={300} />
        {group.row_count > group.rows.length && ` and ${count(group.row_count - group.rows.length)} more`}. By
        candidate:{" "}
        {Object.entries(group.candidates)
          .slice(0, CANDIDATES)
          .map(([name, times], at) => (
            <span key={name}>
              {at > 0 && ", "}
              <CandidateLink name={name} view={view} />: {count(times)}
            </span>
          ))}
        {Object.keys(group.candidates).length > CANDIDATES &&
          ` and ${count(Object.keys(group.candidates).length - CANDIDATES)} more`}
        .{group.message_count > 1 && <Messages group={group} />} The first, of <Inline text={rowName(group.row)} /> with{" "}
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
  );
}

/** The most frequent messages of a group, with how often each occurred. */
function Messages({ group: { messages, message_count } }: { group: FailureGroup }) {
  const listed = Object.entries(messages).sort(([, a], [, b]) => b - a); // keys that are numbers come first else
  return (
    <>
      {" "}
      Messages:{" "}
      {listed.map(([message, times], at) => (
        <span key={message}>
          {at > 0 && ", "}
          <Inline as="code" text={message} length={160} /> ({counted(times, "time")})
        </span>
      ))}
      {message_count > listed.length && ` and ${count(message_count - listed.length)} more`}.
    </>
  );
}
