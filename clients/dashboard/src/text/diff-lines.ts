/** The lines of a unified diff of files: added, removed, or neither. */

import type { Piece } from "./compare";

/** Return the diff by line; the lines that name a file are neither added nor removed. */
export function diffLines(text: string): Piece[] {
  let inHunk = false;
  return text.split(/(?<=\n)/).map((line) => {
    if (line.startsWith("diff --git ")) inHunk = false;
    else if (line.startsWith("@@")) inHunk = true;
    const kind = !inHunk ? "same" : line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : "same";
    return { kind, text: line };
  });
}
