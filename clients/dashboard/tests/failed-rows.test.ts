import { expect, test } from "vitest";
import type { FailureCounts, Run } from "../src/generated/events";
import { failedRows } from "../src/state/failed-rows";

const failures = { event: "failures", cells: { abc: [0, 2, 3] } } as unknown as FailureCounts;

test("A cell has failed if a failure of its candidate is known there and its score is none, or that of failures", () => {
  const run = { settings: {} } as unknown as Run;
  const scores = Float64Array.of(0, 0, Number.NaN, 1);
  expect([...(failedRows("abc", scores, failures, run) as Uint8Array)]).toEqual([1, 0, 1, 0]);
  expect(failedRows("other", scores, failures, run)).toBeNull();
  const lower = { settings: { failure_score: -1 } } as unknown as Run;
  expect([...(failedRows("abc", Float64Array.of(-1, 0, 0, 0), failures, lower) as Uint8Array)]).toEqual([1, 0, 0, 0]);
});
