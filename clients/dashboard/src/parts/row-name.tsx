/** The names of rows and of candidates, the same on every view. */

import { href } from "../route";
import type { View } from "../state/view";
import { candidateOrProposal } from "./format";
import { Inline } from "./text";

const SPLITS: readonly (readonly [prefix: string, name: string])[] = [
  ["train or val ", "training or validation"],
  ["train ", "training"],
  ["val ", "validation"],
  ["test ", "test"],
];

/** Return the name of a row that the server names with its split: `val 7` is `validation row 7`. */
export function rowName(row: string): string {
  return rowNames([row]);
}

/** Return the names of several rows by their split, in the order in which the splits come first. */
export function rowNames(rows: readonly string[]): string {
  const groups = new Map<string, string[]>();
  for (const row of rows) {
    const [prefix, split] = SPLITS.find(([prefix]) => row.startsWith(prefix)) ?? ["", ""];
    groups.set(split, [...(groups.get(split) ?? []), row.slice(prefix.length)]);
  }
  return [...groups]
    .map(([split, ids]) => `${split}${split && " "}row${ids.length > 1 ? "s" : ""} ${ids.join(", ")}`)
    .join("; ");
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
