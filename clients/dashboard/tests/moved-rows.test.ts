import { expect, test } from "vitest";
import { movedRows } from "../src/state/moved-rows";

test("A row without a score of one of two candidates is neither better nor worse nor the same", () => {
  const before = { scores: Float64Array.of(1, 0, 0.5, Number.NaN, 1) };
  const after = { scores: Float64Array.of(0, 1, 0.5, 1, Number.NaN, 1) };
  expect(movedRows(before, after)).toEqual({ better: 1, worse: 1, same: 1 });
});
