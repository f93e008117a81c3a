/** The differences of two texts: first by lines, then by words in the places that changed. */

import { diffArrays } from "diff/lib/diff/array.js";

export type Kind = "same" | "add" | "del";

export interface Piece {
  readonly kind: Kind;
  readonly text: string;
}

/** Two sequences with more changes than this are shown as replaced: the search is quadratic. */
const MOST_CHANGES = 1_000;

/** Share of the shorter text that must be common for its words to be compared one by one. */
const ALIKE = 0.3;

/** Return both texts as one sequence; without `add` it is the first text, without `del` the second. */
export function compare(before: string, after: string): Piece[] {
  let pieces: Piece[] = [];
  let was = "";
  let now = "";
  const flush = () => {
    if (was || now) pieces = pieces.concat(changedWords(was, now));
    was = "";
    now = "";
  };
  for (const piece of sequence(lines(before), lines(after))) {
    if (piece.kind === "same") {
      flush();
      pieces.push(piece);
    } else if (piece.kind === "del") was += piece.text;
    else now += piece.text;
  }
  flush();
  return joined(pieces);
}

function lines(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

function words(text: string): string[] {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
}

function changedWords(before: string, after: string): Piece[] {
  const replaced: Piece[] = [
    { kind: "del", text: before },
    { kind: "add", text: after },
  ];
  if (!before || !after) return replaced;
  const pieces = sequence(words(before), words(after));
  const kept = pieces.reduce((sum, piece) => sum + (piece.kind === "same" ? letters(piece.text) : 0), 0);
  if (kept < ALIKE * Math.min(letters(before), letters(after))) return replaced;
  // Words that share only a space are one change.
  const found: Piece[] = [];
  let was = "";
  let now = "";
  for (const piece of pieces) {
    if (piece.kind === "del") was += piece.text;
    else if (piece.kind === "add") now += piece.text;
    else if ((was || now) && !piece.text.trim()) {
      was += piece.text;
      now += piece.text;
    } else {
      found.push(...changed(was, now), piece);
      was = "";
      now = "";
    }
  }
  return [...found, ...changed(was, now)];
}

/** A change without the space that both texts end with. */
function changed(was: string, now: string): Piece[] {
  const end = /\s*$/.exec(was)?.[0] ?? "";
  const common = end && now.endsWith(end) ? end : "";
  return [
    { kind: "del", text: was.slice(0, was.length - common.length) },
    { kind: "add", text: now.slice(0, now.length - common.length) },
    { kind: "same", text: common },
  ];
}

function letters(text: string): number {
  return text.replace(/\s+/g, "").length;
}

function joined(pieces: readonly Piece[]): Piece[] {
  const found: Piece[] = [];
  for (const piece of pieces) {
    if (!piece.text) continue;
    const last = found.at(-1);
    if (last?.kind === piece.kind) found[found.length - 1] = { kind: piece.kind, text: last.text + piece.text };
    else found.push(piece);
  }
  return found;
}

/** Compare two sequences of parts. */
function sequence(before: readonly string[], after: readonly string[]): Piece[] {
  const found = diffArrays([...before], [...after], { maxEditLength: MOST_CHANGES });
  const replaced = [
    { removed: true, added: false, value: before },
    { removed: false, added: true, value: after },
  ];
  return (found ?? replaced).map(({ added, removed, value }) => ({
    kind: added ? "add" : removed ? "del" : "same",
    text: value.join(""),
  }));
}
