/** Split rows at random into training rows and others. */

import { SetupError, wholeNumber } from "../base/configuration.js";
import { PythonRandom } from "../base/python-random.js";
import { shown } from "../base/values.js";

/**
 * Return the rows in random order, in splits: `splitRows(rows, { val: 0.2, test: 0.2 })` has 60 % of them as `train`.
 *
 * `shares`: the share of each split, rounded to whole rows, one at least. The same rows, shares and seed give the same
 * splits; the order is that of Python's `random.Random(seed).shuffle(rows)`, of which each split takes its rows in turn.
 *
 * Throws `SetupError` for shares that are not between 0 and 1, or that leave no row to train on.
 */
export function splitRows<Row, Split extends string>(
  rows: readonly Row[],
  shares: Record<Split, number>,
  seed = 0,
): Record<Split | "train", Row[]> {
  const left = new PythonRandom(wholeNumber("seed", seed, 0)).shuffled(rows);
  const splits = Object.entries<number>(shares).map(([split, share]): [string, Row[]] => {
    if (split === "train") throw new SetupError("`train` has no share of its own: it gets the rows that are left");
    if (!(share > 0 && share < 1))
      throw new SetupError(`the share of \`${split}\` must be between 0 and 1, not ${shown(share)}`);
    return [split, left.splice(0, Math.max(1, Math.round(share * rows.length)))];
  });
  if (left.length === 0) throw new SetupError(`${rows.length} rows are too few: none is left to train on`);
  return Object.fromEntries([["train", left], ...splits]) as Record<Split | "train", Row[]>;
}
