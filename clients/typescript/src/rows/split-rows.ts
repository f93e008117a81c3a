/** Split rows at random into training rows and others. */

import { SetupError, wholeNumber } from "../base/configuration.js";
import { shown } from "../base/values.js";

/**
 * Return the rows in random order, in splits: `splitRows(rows, { val: 0.2, test: 0.2 })` has 60 % of them as `train`.
 *
 * `shares`: the share of each split, rounded to whole rows, one at least. The same rows, shares and seed give the same
 * splits.
 *
 * Throws `SetupError` for shares that are not between 0 and 1, or that leave no row to train on.
 */
export function splitRows<Row, Split extends string>(
  rows: readonly Row[],
  shares: Record<Split, number>,
  seed = 0,
): Record<Split | "train", Row[]> {
  const left = shuffled(rows, wholeNumber(0, 0)(seed, "seed"));
  const splits = Object.entries<number>(shares).map(([split, share]): [string, Row[]] => {
    if (split === "train") throw new SetupError("`train` has no share of its own: it gets the rows that are left");
    if (!(share > 0 && share < 1))
      throw new SetupError(`the share of \`${split}\` must be between 0 and 1, not ${shown(share)}`);
    return [split, left.splice(0, Math.max(1, Math.round(share * rows.length)))];
  });
  if (left.length === 0) throw new SetupError(`${rows.length} rows are too few: none is left to train on`);
  return Object.fromEntries([["train", left], ...splits]) as Record<Split | "train", Row[]>;
}

/** Return a copy in random order, by the generator mulberry32. */
function shuffled<Row>(rows: readonly Row[], seed: number): Row[] {
  const order = [...rows];
  let state = seed ^ Math.floor(seed / 2 ** 32);
  for (let last = order.length - 1; last > 0; last--) {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    const other = Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * (last + 1));
    [order[last], order[other]] = [order[other] as Row, order[last] as Row];
  }
  return order;
}
