/** What the run has found so far, or came to. */

import type { Run } from "../generated/events";
import { Commands } from "../parts/commands";
import { count, counted, countsOf, OUTCOMES } from "../parts/format";
import { selectingRow } from "../parts/row-name";
import { Inline } from "../parts/text";
import { href } from "../route";
import type { View } from "../state/view";
import { BestText } from "./best-text";

export function Result({ view, api }: { view: View; api: string }) {
  const { run, position } = view.latest;
  const best = view.candidates.find(({ index }) => index === view.best);
  const outcomes = Object.entries(countsOf(view.proposals)).map(
    ([name, times]) => `${count(times)} ${OUTCOMES[name as keyof typeof OUTCOMES]}`,
  );
  return (
    <section class="panel">
      <h2>Result {run?.driven && "so far"}</h2>
      {best === undefined && <p>No candidate yet: the seed has not been scored on all {selectingRow(view)}s.</p>}
      {view.summary !== undefined ? (
        <Sentences sentences={view.summary.story} />
      ) : (
        <p class="quiet">
          {position === undefined
            ? "Proposals: their outcomes are being read."
            : `${[counted(view.proposals.length, "proposal"), outcomes.join(", ")].filter(Boolean).join(": ")}.`}
        </p>
      )}
      <p>
        <a href={href("result")}>
          How the best candidate came about: each change, its reason, and the rows that it moved
        </a>
      </p>
      {best !== undefined && !run?.driven && <BestText view={view} best={best} api={api} />}
      {run !== undefined && <Next run={run} />}
    </section>
  );
}

/** What to do next, by a command. */
export function Next({ run: { commands } }: { run: Run }) {
  if (commands.length === 0) return null;
  return (
    <>
      <h3>What to do next</h3>
      <Commands commands={commands} />
    </>
  );
}

export function Sentences({ sentences }: { sentences: readonly string[] }) {
  return (
    <>
      {sentences.map((sentence, at) => (
        <Inline as="p" key={at} text={sentence} length={5_000} />
      ))}
    </>
  );
}
