/** What of a candidate differs from the seed: changes of code, and texts. */

import type { Excerpt, Mutation } from "../generated/events";
import type { Candidate } from "./reduce";
import type { View } from "./view";

type Code = Pick<View, "candidates" | "mutations">;

/** Return the change that made this candidate; none if it runs the code of a parent. */
export function changeOf({ candidates, mutations }: Code, { code, parents }: Candidate): Mutation | undefined {
  const inherited = candidates.some(({ index, code: own }) => parents.includes(index) && own?.commit === code?.commit);
  return inherited ? undefined : mutations.find(({ commit }) => commit !== null && commit === code?.commit);
}

/** Return the changes on the way from the seed's code to that of a candidate, the first one first. */
export function changesTo(code: Code, candidate: Candidate): Mutation[] {
  const found = new Map<number, Mutation>();
  const seen = new Set([candidate.index]);
  const open = [candidate];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { parents, code: own } = next;
    const change = changeOf(code, next);
    if (change !== undefined) found.set(change.at, change);
    const before = code.candidates.filter(({ index }) => parents.includes(index) && !seen.has(index));
    // A merge has the code of one parent unless a change made it.
    const same = before.filter((each) => each.code?.commit === own?.commit);
    for (const each of same.length > 0 ? same : before) {
      seen.add(each.index);
      open.push(each);
    }
  }
  return [...found.values()].sort((a, b) => a.at - b.at);
}

/** Return the texts of a candidate that differ from another one's, or may: long ones are not known whole. */
export function changedTexts({ texts }: Pick<Candidate, "texts">, other: Pick<Candidate, "texts"> | undefined) {
  const isSame = (text: Excerpt, was: Excerpt | undefined) =>
    text.text === was?.text && text.omitted === 0 && was.omitted === 0;
  return Object.entries(texts).filter(([name, text]) => !isSame(text, other?.texts[name]));
}
