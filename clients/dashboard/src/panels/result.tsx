/** What the run has found so far, or came to. */

import { count, counted, countsOf, OUTCOMES } from "../parts/format";
import { selectingRow } from "../parts/row-name";
import { Inline } from "../parts/text";
import { href } from "../route";
import { LIVE, type View } from "../state/view";
import { BestText } from "./best-text";

export function Result({ view, api }: { view: View; api: string }) {
  const { run, position, summary } = view.latest;
  const best = view.candidates.find(({ index }) => index === view.best);
  const outcomes = Object.entries(countsOf(view.proposals)).map(
    ([name, times]) => `${count(times)} ${OUTCOMES[name as keyof typeof OUTCOMES]}`,
  );
  return (
    <section class="panel">
      <h2>Result {run?.driven && "so far"}</h2>
      {best === undefined && <p>No candidate yet: the seed has not been scored on all {selectingRow(view)}s.</p>}
      {!run?.driven && view.at === LIVE && <Sentences sentences={summary?.story ?? []} />}
      <p class="quiet">
        {position === undefined
          ? "Proposals: their outcomes are being read."
          : `${[counted(view.proposals.length, "proposal"), outcomes.join(", ")].filter(Boolean).join(": ")}.`}
      </p>
      <p>
        <a href={href("result")}>How the best text came about: each change, its reason, and the rows that it moved</a>
      </p>
      {best !== undefined && !run?.driven && <BestText best={best} api={api} />}
    </section>
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
