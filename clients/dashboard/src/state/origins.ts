/** Which candidate brought each part of a text. */

import { compare } from "../text/compare";
import type { Candidate } from "./reduce";

export interface Span {
  readonly text: string;
  /** The first candidate that had it, 0 for the seed. */
  readonly candidate: number;
}

/**
 * Return the parts of a text in order. A candidate brings the words that its parent lacks at their place; a merge takes
 * a text from the parent that has it. The text of a parent that is not known whole counts as its own.
 */
export function originsOf(candidates: readonly Candidate[], index: number, component: string): readonly Span[] {
  const candidate = candidates.find((each) => each.index === index);
  const text = candidate?.texts[component];
  if (candidate === undefined || text === undefined) return [];
  const parents = candidates.filter((each) => candidate.parents.includes(each.index) && component in each.texts);
  const parent = parents.find(({ texts }) => texts[component]?.text === text.text) ?? parents[0];
  if (parent === undefined || text.omitted > 0) return [{ text: text.text, candidate: index }];
  const before = originsOf(candidates, parent.index, component);
  const old = before.map((span) => span.text).join("");
  const found: Span[] = [];
  const add = (span: Span) => {
    const last = found.at(-1);
    if (last?.candidate === span.candidate) found[found.length - 1] = { ...span, text: last.text + span.text };
    else found.push(span);
  };
  let at = 0;
  for (const piece of compare(old, text.text)) {
    if (piece.kind === "add") {
      add({ text: piece.text, candidate: index });
      continue;
    }
    if (piece.kind === "same") for (const span of part(before, at, at + piece.text.length)) add(span);
    at += piece.text.length;
  }
  return found;
}

/** The spans of a text from one character up to another. */
function part(spans: readonly Span[], from: number, to: number): Span[] {
  let start = 0;
  return spans.flatMap(({ text, candidate }) => {
    const cut = text.slice(Math.max(0, from - start), Math.max(0, to - start));
    start += text.length;
    return cut === "" ? [] : [{ text: cut, candidate }];
  });
}
