/** Why the best text won: its line from the seed on, and the rows that are still lost. */

import { useMemo } from "preact/hooks";
import { count, counted, score } from "../parts/format";
import { scoreName } from "../parts/score-name";
import { Inline } from "../parts/text";
import { href } from "../route";
import { lowestScore, movedRows, placesLowest } from "../state/moved-rows";
import type { Candidate } from "../state/reduce";
import { scoredRows } from "../state/scored-rows";
import type { View } from "../state/view";
import { compare } from "../text/compare";

/** Added parts of a change that are listed. */
const ADDED = 5;

export function BestLine({ view }: { view: View }) {
  const line = useMemo(() => ancestors(view.candidates, view.best), [view.candidates, view.best]);
  const seed = view.candidates[0];
  const best = line.at(-1);
  if (seed === undefined || best === undefined || best.index === 0) return null;
  const moved = movedRows(seed, best);
  const lowest = lowestScore(best);
  const lost = placesLowest(best).length;
  return (
    <section class="panel">
      <h2>How the best text came about</h2>
      <ol class="steps">
        {line.slice(1).map((candidate, at) => (
          <Step key={candidate.index} view={view} parent={line[at] as Candidate} candidate={candidate} />
        ))}
      </ol>
      <p>
        <a href={href("result")}>The last change with the rows that it fixed and broke</a>
      </p>
      <p>
        Against the seed: {counted(moved.better, "row")} better, {count(moved.worse)} worse, {count(moved.same)} alike.{" "}
        {lost === scoredRows(best.scores)
          ? `All ${counted(lost, "row")} have a score of ${score(lowest)}`
          : `${counted(lost, "row")} ${lost === 1 ? "has" : "have"} its lowest score, ${score(lowest)}`}
        : <a href={href("rows", { lowest: best.index })}>see these rows</a>, or{" "}
        <a href={href("text", { as: "origins" })}>where each part is from</a>.
      </p>
    </section>
  );
}

function Step({ view, parent, candidate }: { view: View; parent: Candidate; candidate: Candidate }) {
  const proposal = view.proposals.find((each) => each.candidate === candidate.index);
  const added = useMemo(() => addedParts(parent, candidate), [parent, candidate]);
  return (
    <li>
      <a href={href("text", { candidate: candidate.index, with: parent.index })}>
        {candidate.parents.length > 1 ? "Merge" : "Candidate"} {candidate.index}
      </a>
      : {scoreName(view)} {score(parent.score)} {"\u2192"} <strong>{score(candidate.score)}</strong>
      {proposal !== undefined && (
        <>
          ,{" "}
          <a href={href("reflection", { proposal: proposal.at })}>
            {view.latest.run?.reflection_model === null ? "its proposal" : "prompt and answer"}
          </a>
        </>
      )}
      {added.length > 0 && (
        <ul class="added quiet" aria-label="What it adds">
          {added.slice(0, ADDED).map((part, at) => (
            <li key={at}>
              + <Inline text={part} length={110} />
            </li>
          ))}
          {added.length > ADDED && <li>and {count(added.length - ADDED)} more</li>}
        </ul>
      )}
    </li>
  );
}

/** The candidate and its first parents, the seed first. */
function ancestors(candidates: readonly Candidate[], best: number | null): Candidate[] {
  const known = new Map(candidates.map((candidate) => [candidate.index, candidate]));
  const line: Candidate[] = [];
  let next = known.get(best ?? -1);
  while (next !== undefined && !line.includes(next)) {
    line.push(next);
    next = known.get(next.parents[0] ?? -1);
  }
  return line.reverse();
}

/** Return what the first changed component has more: whole lines if it has several lines, else its words in one part. */
function addedParts(parent: Candidate, candidate: Candidate): string[] {
  for (const [component, { text }] of Object.entries(candidate.texts)) {
    const before = parent.texts[component]?.text ?? "";
    if (before === text) continue;
    const known = new Set(before.split("\n"));
    const lines = text.split("\n");
    const added =
      lines.length > 1
        ? lines.filter((line) => !known.has(line))
        : [
            compare(before, text)
              .flatMap((piece) => (piece.kind === "add" ? [piece.text.trim()] : []))
              .filter(Boolean)
              .join(" \u2026 "),
          ];
    const parts = added.map((part) => part.trim()).filter(Boolean);
    if (parts.length > 0) return parts;
  }
  return [];
}
