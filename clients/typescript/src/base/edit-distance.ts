/** The nearest of several names, for messages about a name that does not exist. */

/** Return the name with the fewest edits, if those are at most half of its letters. */
export function nearest(name: string, names: readonly string[]): string | undefined {
  const [best] = names
    .map((known) => ({ known, edits: editDistance(name, known) }))
    .filter(({ known, edits }) => edits <= Math.max(name.length, known.length) / 2)
    .sort((left, right) => left.edits - right.edits);
  return best?.known;
}

/** Return the number of letters to insert, delete or replace (Levenshtein). */
export function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, at) => at);
  for (let i = 1; i <= from.length; i++) {
    const above = row;
    row = [i];
    for (let j = 1; j <= to.length; j++) {
      const replaced = (above[j - 1] as number) + (from[i - 1] === to[j - 1] ? 0 : 1);
      row.push(Math.min(replaced, (above[j] as number) + 1, (row[j - 1] as number) + 1));
    }
  }
  return row[to.length] as number;
}
