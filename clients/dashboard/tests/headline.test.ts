import { expect, test } from "vitest";
import type { PageEvent } from "../src/generated/events";
import { headlineOf } from "../src/state/headline";
import { EMPTY, reduce } from "../src/state/reduce";
import { LIVE, viewAt } from "../src/state/view";
import { sampleRun } from "./sample-run";

const { events } = sampleRun({ candidates: 4, rows: 6 });
const TIED = [
  { index: 3, validation: 0.9, fresh: 0.5, mean: 0.6 },
  { index: 0, validation: 0.2, fresh: 0.4, mean: 0.35 },
];

function headline({ candidates = TIED, left = 18, at = LIVE }) {
  const ties = {
    event: "ties_compared",
    at: 500,
    best: 3,
    rows: 18,
    validation_rows: 6,
    validation_left: left,
    candidates,
  };
  return headlineOf(viewAt(reduce(EMPTY, [...events, ties as unknown as PageEvent]), at));
}

test("After a search on a sample the scores of a run are those of all compared rows", () => {
  expect(headline({})).toEqual({ seed: 0.35, best: 0.6, left: 18 });
});

test("A comparison counts until the pool changes", () => {
  const ties = {
    event: "ties_compared",
    at: 500,
    best: 3,
    rows: 18,
    validation_rows: 6,
    validation_left: 18,
    candidates: TIED,
  };
  const pool = { event: "steered", number: 500, at: 501, front: [1], best: 1 };
  const later = [...events, { ...ties }, pool] as unknown as PageEvent[];
  expect(headlineOf(viewAt(reduce(EMPTY, later), LIVE))).toMatchObject({ left: 0 });
  const again = [...later, { ...ties, at: 502 }] as PageEvent[];
  expect(headlineOf(viewAt(reduce(EMPTY, again), LIVE))).toMatchObject({ best: 0.6, left: 18 });
});

test("Without validation rows that the search left out, and at an earlier entry, they are those of the search", () => {
  const { candidates, best } = viewAt(reduce(EMPTY, events), LIVE);
  const ofSearch = { seed: candidates[0]?.score, best: candidates[3]?.score, left: 0 };
  expect(headline({ left: 0 })).toEqual(ofSearch);
  expect(headline({ candidates: TIED.slice(0, 1) })).toEqual(ofSearch);
  expect(headline({ at: 1_000 })).toEqual({ ...ofSearch, best: candidates.find((each) => each.index === best)?.score });
  expect(headlineOf(viewAt(EMPTY, LIVE))).toBeNull();
});
