/** The names of rows, of candidates and of their scores, the same on every view. */

import type { Proposal } from "../generated/events";
import { href } from "../route";
import type { View } from "../state/view";
import { candidateName, count } from "./format";

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
  return SPLITS.some((split) => row.startsWith(`${split} `)) ? row : `row ${row}`;
}

/** Return the name of the row at a place of the rows that candidates are scored on. */
export function scoredRow(view: Pick<View, "onTraining" | "rows">, place: number): string {
  return `${view.onTraining ? "train" : "val"} ${view.rows[place] ?? "unknown"}`;
}

/** Return `proposal 4`, or `merge 4`: they are numbered in the order in which they began. */
export function proposalName({ proposals }: View, proposal: Proposal): string {
  return `${proposal.merge ? "merge" : "proposal"} ${count(proposals.indexOf(proposal) + 1)}`;
}

export function ProposalLink({ view, proposal }: { view: View; proposal: Proposal }) {
  return <a href={href("reflection", { proposal: proposal.at })}>{proposalName(view, proposal)}</a>;
}

/** A candidate by its index, or a proposal by the beginning of its digest, with a link to what is known of it. */
export function CandidateLink({ name, view }: { name: string; view: View }) {
  const proposal = view.proposals.find(({ digest, candidate }) => digest === name && candidate === null);
  if (proposal !== undefined) return <ProposalLink view={view} proposal={proposal} />;
  if (!/^\d{1,6}$/.test(name)) return <>a proposal</>;
  const shown = candidateName(Number(name));
  return view.candidates.some(({ index }) => String(index) === name) ? (
    <a href={href("text", { candidate: name })}>{shown}</a>
  ) : (
    shown
  );
}
