import { expect, test } from "vitest";
import type { PageEvent } from "../src/generated/events";
import { exampleAge } from "../src/parts/example-age";
import { heightOfNames } from "../src/parts/heat-map";
import { lastChange } from "../src/state/last-change";
import { placesLowest, placesMoved } from "../src/state/moved-rows";
import { EMPTY, reduce } from "../src/state/reduce";
import { LIVE, viewAt } from "../src/state/view";
import { aroundChanges, compare } from "../src/text/compare";
import { sampleRun } from "./sample-run";

const BEFORE = { scores: Float64Array.of(0, 1, 0.5, Number.NaN, 0.2) };
const AFTER = { scores: Float64Array.of(0.5, 0, 0.5, 1, 0.9) };

test("Rows that a change fixed and broke are those with a higher and a lower score, those that moved most first", () => {
  expect(placesMoved(BEFORE, AFTER, 1)).toEqual([4, 0]);
  expect(placesMoved(BEFORE, AFTER, -1)).toEqual([1]);
  expect(placesLowest(BEFORE)).toEqual([0]);
});

function viewOf(parents: number[], best: number) {
  const events = sampleRun({ candidates: 4 }).events.map((event) => {
    if (event.event !== "candidate") return event;
    return { ...event, score: event.index / 4, parents: event.index ? parents : [], best };
  });
  return viewAt(reduce(EMPTY, events as PageEvent[]), LIVE);
}

test("The last change is that of the best candidate against its parent, the better one of two", () => {
  const change = lastChange(viewOf([0, 1], 3));
  expect([change?.candidate.index, change?.parent.index, change?.proposal?.candidate]).toEqual([3, 1, 3]);
  expect(lastChange(viewOf([0], 0))).toBeNull();
});

test("A change took the metric calls since the end of the iteration before", () => {
  const view = viewOf([0], 3);
  expect(lastChange(view)?.calls).toBe(36);
  expect(lastChange({ ...view, metricCallCounts: [] })?.calls).toBeNull();
});

test("The changes of a long text keep the lines beside them", () => {
  const lines = Array.from({ length: 9 }, (_, at) => `rule ${at}\n`);
  const changed = [...lines.slice(0, 5), "new\n", ...lines.slice(5)].join("");
  expect(aroundChanges(compare(lines.join(""), changed))).toEqual([
    { kind: "same", text: "[\u2026]\nrule 3\nrule 4\n" },
    { kind: "add", text: "new\n" },
    { kind: "same", text: "rule 5\nrule 6\n[\u2026]\n" },
  ]);
  expect(aroundChanges(compare("a b", "a c"))).toEqual(compare("a b", "a c"));
});

test("The heat map has room for the names of all rows unless there are many", () => {
  expect(heightOfNames(72)).toBeGreaterThan(72 * 10);
  expect(heightOfNames(1_000)).toBe(0);
});

test("Since when an example is in flight follows from the time of the last result, else how long is stated", () => {
  const now = { last_result: "2026-01-05T10:00:00Z", no_result_s: 210 };
  expect(exampleAge(now, 209)).toMatch(/^since \d\d:00:01$/);
  expect(exampleAge({ ...now, last_result: null }, 209)).toBe("for 3 min");
});
