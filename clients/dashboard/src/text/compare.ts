/** The differences of two texts: first by lines, then by words in the places that changed. */

export type Kind = "same" | "add" | "del";

export interface Piece {
  readonly kind: Kind;
  readonly text: string;
}

/** More changes than this between two sequences, and their middle is shown as replaced: the search is quadratic. */
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

/** Characters and lines of an unchanged part that stay beside a change. */
const BESIDE = 160;
const BESIDE_LINES = 2;

/** Return the changes with the beginning and the end of what is unchanged between them. */
export function aroundChanges(pieces: readonly Piece[]): Piece[] {
  return pieces.map((piece, at) => {
    if (piece.kind !== "same") return piece;
    const [head, tail] = [at > 0 ? beginning(piece.text) : "", at + 1 < pieces.length ? ending(piece.text) : ""];
    if (head.length + tail.length >= piece.text.length) return piece;
    const omitted = piece.text.includes("\n") ? "[\u2026]\n" : " [\u2026] ";
    return { kind: "same", text: `${head}${omitted}${tail}` };
  });
}

function beginning(text: string): string {
  return lines(text).slice(0, BESIDE_LINES).join("").slice(0, BESIDE);
}

function ending(text: string): string {
  return lines(text).slice(-BESIDE_LINES).join("").slice(-BESIDE);
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

/** Compare two sequences of parts. Source: Myers, An O(ND) Difference Algorithm and Its Variations (1986). */
function sequence(before: readonly string[], after: readonly string[]): Piece[] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let end = 0;
  while (
    end < before.length - start &&
    end < after.length - start &&
    before[before.length - 1 - end] === after[after.length - 1 - end]
  )
    end += 1;
  const old = before.slice(start, before.length - end);
  const fresh = after.slice(start, after.length - end);
  return [
    { kind: "same", text: before.slice(0, start).join("") },
    ...middle(old, fresh),
    { kind: "same", text: before.slice(before.length - end).join("") },
  ];
}

function middle(before: readonly string[], after: readonly string[]): Piece[] {
  const trace: Int32Array[] = [];
  const most = Math.min(MOST_CHANGES, before.length + after.length);
  const reach = new Int32Array(2 * most + 3);
  for (let changes = 0; changes <= most; changes += 1) {
    trace.push(reach.slice(most + 1 - changes - 1, most + 1 + changes + 2));
    for (let diagonal = -changes; diagonal <= changes; diagonal += 2) {
      const at = most + 1 + diagonal;
      const down = diagonal === -changes || (diagonal !== changes && (reach[at - 1] ?? 0) < (reach[at + 1] ?? 0));
      let x = down ? (reach[at + 1] ?? 0) : (reach[at - 1] ?? 0) + 1;
      while (x < before.length && x - diagonal < after.length && before[x] === after[x - diagonal]) x += 1;
      reach[at] = x;
      if (x >= before.length && x - diagonal >= after.length) return traced(trace, before, after);
    }
  }
  return [
    { kind: "del", text: before.join("") },
    { kind: "add", text: after.join("") },
  ];
}

function traced(trace: readonly Int32Array[], before: readonly string[], after: readonly string[]): Piece[] {
  const found: Piece[] = [];
  let x = before.length;
  let y = after.length;
  for (let changes = trace.length - 1; changes >= 0; changes -= 1) {
    const reach = trace[changes] ?? new Int32Array();
    const at = (diagonal: number) => reach[diagonal + changes + 1] ?? 0;
    const diagonal = x - y;
    const down = diagonal === -changes || (diagonal !== changes && at(diagonal - 1) < at(diagonal + 1));
    const fromX = down ? at(diagonal + 1) : at(diagonal - 1);
    const fromY = fromX - (down ? diagonal + 1 : diagonal - 1);
    while (x > fromX && y > fromY && x > 0 && y > 0) {
      x -= 1;
      y -= 1;
      found.push({ kind: "same", text: before[x] ?? "" });
    }
    if (changes === 0) break;
    if (down) {
      y -= 1;
      found.push({ kind: "add", text: after[y] ?? "" });
    } else {
      x -= 1;
      found.push({ kind: "del", text: before[x] ?? "" });
    }
  }
  return found.reverse();
}
