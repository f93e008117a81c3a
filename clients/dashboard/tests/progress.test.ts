import { expect, test } from "vitest";
import type { PageEvent } from "../src/generated/events";
import { progress } from "../src/state/progress";
import { EMPTY, reduce } from "../src/state/reduce";
import { LIVE, viewAt } from "../src/state/view";

test("The plot has each candidate with a value on its axis, 0 too, with the best score until then", () => {
  const found = [
    { index: 0, score: 0.5, cost_usd: 0 },
    { index: 1, score: 0.25, cost_usd: 0.5 },
    { index: 2, score: 0.75, cost_usd: null },
  ].map((each) => ({ ...each, event: "candidate", at: each.index, digest: `d${each.index}`, scores: [each.score] }));
  const { points, missing } = progress(viewAt(reduce(EMPTY, found as unknown as PageEvent[]), LIVE), "cost");
  expect(points.map(({ x, best }) => [x, best])).toEqual([
    [0, 0.5],
    [0.5, 0.5],
  ]);
  expect(missing).toBe(1);
});
