/** Changes of code: those that made a candidate, and one with its request, its outcome and its log. */

import type { Mutation } from "../generated/events";
import { counted, money } from "../parts/format";
import { Diff, Inline } from "../parts/text";
import { changesTo } from "../state/changes";
import type { Candidate } from "../state/reduce";
import type { View } from "../state/view";
import { Part } from "../views/cell";

/** The code of a candidate: its commit, and the difference of each change from the seed's code to it. */
export function Code({ view, candidate }: { view: View; candidate: Candidate }) {
  const changes = changesTo(view, candidate);
  return (
    <>
      <p class="quiet">
        Commit <Inline text={(candidate.code?.commit ?? "").slice(0, 12)} />
        {candidate.code?.branch && (
          <>
            {" "}
            of branch <Inline text={candidate.code.branch} />
          </>
        )}
      </p>
      {changes.map((change, at) => (
        <section key={change.at}>
          <h3>
            {changes.length > 1 && `${at + 1}. `}
            <Title mutation={change} />
          </h3>
          <Difference mutation={change} />
        </section>
      ))}
    </>
  );
}

export function Change({ mutation, isOpen = false }: { mutation: Mutation; isOpen?: boolean }) {
  return (
    <details open={isOpen}>
      <summary>
        <Title mutation={mutation} />
      </summary>
      <Part name="Reason" value={mutation.reason} />
      <Part name="Log" value={mutation.log} />
      <Part name="Request" value={mutation.request} />
      <Part name="Summary" value={mutation.summary} />
      {mutation.diff !== null && <h3>Difference</h3>}
      <Difference mutation={mutation} />
    </details>
  );
}

function Title({ mutation: { stage, summary, reason, request, files, cost_usd } }: { mutation: Mutation }) {
  const facts = [files.length > 0 && counted(files.length, "file"), cost_usd !== null && money(cost_usd)];
  return (
    <>
      {stage === null ? (
        "Change"
      ) : (
        <span class="bad">
          Rejected at stage <Inline text={stage} />
        </span>
      )}
      : <Inline text={(summary ?? reason ?? request).text} length={160} />{" "}
      <span class="quiet">{facts.filter(Boolean).join(", ")}</span>
    </>
  );
}

function Difference({ mutation: { diff } }: { mutation: Mutation }) {
  if (diff === null) return null;
  return <Diff text={diff.text} omitted={diff.omitted} />;
}
