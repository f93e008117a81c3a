import { expect, test } from "vitest";
import type { PageEvent } from "../src/generated/events";
import { heightOfNames } from "../src/parts/heat-map";
import { placesLowest } from "../src/state/moved-rows";
import { byDifficulty, rowMeans } from "../src/state/order";
import { callsBy } from "../src/state/progress";
import { EMPTY, reduce } from "../src/state/reduce";
import { layout } from "../src/state/tree";
import { LIVE, viewAt } from "../src/state/view";

const scored = (index: number, scores: number[]) => ({ index, scores: Float64Array.from(scores) });

test("Rows are ordered by difficulty, those without a score last", () => {
  const means = rowMeans([scored(0, [0.5, Number.NaN, 0.1]), scored(1, [0.7, Number.NaN, Number.NaN])], 3);
  expect([...byDifficulty(means)]).toEqual([2, 0, 1]);
});

test("Metric calls lie on a straight line from none at the start over the known places, and after them are the last", () => {
  const counts = [10, 20].map((at) => ({ event: "budget" as const, seconds: 0, at, metric_calls: 10 * at }));
  const view = viewAt(reduce(EMPTY, counts), LIVE);
  expect([5, 10, 15, 20, 99].map((at) => callsBy(view, at))).toEqual([50, 100, 150, 200, 200]);
  expect(callsBy(viewAt(EMPTY, LIVE), 5)).toBeNull();
  const now = { event: "now", metric_calls: 209 } as unknown as PageEvent;
  expect([LIVE, 20].map((at) => viewAt(reduce(EMPTY, [...counts, now]), at).metricCalls)).toEqual([209, 200]);
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
