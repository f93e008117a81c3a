import { expect, test } from "vitest";
import { heightOfNames } from "../src/parts/heat-map";
import { placesLowest } from "../src/state/moved-rows";
import { byDifficulty, rowMeans } from "../src/state/order";
import { between } from "../src/state/progress";
import { layout } from "../src/state/tree";

const scored = (index: number, scores: number[]) => ({ index, scores: Float64Array.from(scores) });

test("Rows are ordered by difficulty, those without a score last", () => {
  const means = rowMeans([scored(0, [0.5, Number.NaN, 0.1]), scored(1, [0.7, Number.NaN, Number.NaN])], 3);
  expect([...byDifficulty(means)]).toEqual([2, 0, 1]);
});

test("A value between known places lies on a straight line, and beyond them is the nearest", () => {
  const known = [
    [10, 100],
    [20, 200],
  ] as const;
  expect([5, 10, 15, 20, 99].map((at) => between(known, at))).toEqual([100, 100, 150, 200, 200]);
  expect(between([], 5)).toBeNull();
});

test("The tree places children to the right of their parents, without overlaps, for chains of any length", () => {
  const chain = Array.from({ length: 5_000 }, (_, index) => ({ index, parents: index ? [index - 1] : [] }));
  const { nodes, depth, lines } = layout(chain);
  expect([nodes.size, depth, lines]).toEqual([5_000, 5_000, 1]);
  const forked = layout([
    { index: 0, parents: [] },
    { index: 1, parents: [0] },
    { index: 2, parents: [0] },
    { index: 3, parents: [1, 2] },
    { index: 7, parents: [6] }, // its parent has not arrived
  ]);
  expect([...forked.nodes.values()].map(({ index, depth, line }) => [index, depth, line]).sort()).toEqual([
    [0, 0, 0.5],
    [1, 1, 0],
    [2, 1, 1],
    [3, 2, 0],
    [7, 0, 2],
  ]);
});

test("The rows with the lowest score of a candidate are found, and those without a score are none", () => {
  expect(placesLowest({ scores: Float64Array.of(0, 1, 0.5, Number.NaN, 0) })).toEqual([0, 4]);
});

test("The heat map has room for the names of all rows unless there are many", () => {
  expect(heightOfNames(72)).toBeGreaterThan(72 * 10);
  expect(heightOfNames(1_000)).toBe(0);
});
