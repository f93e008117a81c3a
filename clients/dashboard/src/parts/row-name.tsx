/** The names of rows, of candidates and of their scores, the same on every view. */

import { href } from "../route";
import type { View } from "../state/view";
import { candidateOrProposal } from "./format";
import { Inline } from "./text";

const SPLITS = ["train or val", "train", "val", "test"];

/** Return what the score of a candidate is called: test rows, which follow the search, are others. */
export function scoreName({ onTraining }: Pick<View, "onTraining">): string {
  return onTraining ? "training score" : "validation score";
}

/** Return `validation row`, or `training row` if no validation rows were given. */
export function selectingRow({ onTraining }: Pick<View, "onTraining">): string {
  return onTraining ? "training row" : "validation row";
}

/** Return the name of a row as the server states it with its split, `val 7`; `row 7` without one. */
export function rowName(row: string): string {
  return rowNames([row]);
}

/** Return the names of several rows by their split, in the order in which the splits come first: `train 5, 94; val 3`. */
export function rowNames(rows: readonly string[]): string {
  const groups = new Map<string, string[]>();
  for (const row of rows) {
    const split = SPLITS.find((name) => row.startsWith(`${name} `)) ?? "";
    groups.set(split, [...(groups.get(split) ?? []), split ? row.slice(split.length + 1) : row]);
  }
  return [...groups]
    .map(([split, ids]) => `${split || (ids.length > 1 ? "rows" : "row")} ${ids.join(", ")}`)
    .join("; ");
}

/** Return the split that candidates are scored on: training rows if no validation rows were given. */
export function scoredSplit({ onTraining }: Pick<View, "onTraining">): "train" | "val" {
  return onTraining ? "train" : "val";
}

/** Return the name of the row at a place of the rows that candidates are scored on. */
export function scoredRow(view: Pick<View, "onTraining" | "rows">, place: number): string {
  return `${scoredSplit(view)} ${view.rows[place] ?? "unknown"}`;
}

/** The name of a candidate, or of a proposal by the beginning of its digest, with a link to what is known of it. */
export function CandidateLink({ name, view }: { name: string; view: View }) {
  const shown = <Inline text={candidateOrProposal(name)} length={80} />;
  if (view.candidates.some(({ index }) => String(index) === name)) {
    return <a href={href("text", { candidate: name })}>{shown}</a>;
  }
  const proposal = view.proposals.find(({ digest }) => digest === name);
  return proposal === undefined ? shown : <a href={href("reflection", { proposal: proposal.at })}>{shown}</a>;
}
