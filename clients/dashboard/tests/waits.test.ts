import { expect, test } from "vitest";
import type { Now } from "../src/generated/events";
import { EMPTY, reduce } from "../src/state/reduce";
import { LIVE, viewAt } from "../src/state/view";
import { waitsOf } from "../src/state/waits";
import { sampleRun } from "./sample-run";

const AT = Date.parse("2026-01-05T10:30:00Z");
const CALM = { lost: false, waiting_for: null, waiting_since: null, reflecting_since: null, no_result_s: 1 };

function waits(changed: Partial<Now>) {
  const { events } = sampleRun({ driven: true });
  const now = { ...(events.find(({ event }) => event === "now") as Now), ...CALM, ...changed };
  return waitsOf(viewAt(reduce(EMPTY, [...events, now]), LIVE), AT);
}

test("A run whose examples finish waits for nothing", () => {
  expect(waits({})).toEqual([]);
});

test("A run without a server states the last error, and since when it waits", () => {
  const detail = "no endpoint is left; last error: connection refused";
  const since = "2026-01-05T10:28:00Z";
  expect(waits({ waiting_for: detail, waiting_since: since, no_result_s: 130 })).toEqual([
    { what: "a server that answers", detail, since, seconds: 120 },
  ]);
});

test("A run whose model does not answer names the model and the component", () => {
  const [wait] = waits({ reflecting_since: "2026-01-05T10:29:00Z", reflecting: ["instructions"], no_result_s: 60 });
  expect(wait).toMatchObject({ detail: "a new text of instructions", seconds: 60 });
  expect(wait?.what).toMatch(/^an answer of the model /);
  expect(waits({ reflecting_since: "2026-01-05T10:29:55Z", reflecting: ["instructions"] })).toEqual([]);
});

test("A run whose examples do not finish names the longest and when its server ends it", () => {
  const longest = [{ row: "val 7", candidate: "2", seconds: 45, limit_s: 60, endpoint: null }];
  const detail = expect.stringMatching(
    /^longest: val 7 with candidate 2, since \d\d:\d\d:\d\d; its server ends this example after 1 min$/,
  );
  expect(waits({ in_flight: 3, no_result_s: 45, usual_s: 5, longest })).toMatchObject([
    { what: "3 examples in flight", detail },
  ]);
});

test("A time that is none gives a wait without a duration", () => {
  expect(waits({ waiting_for: "x", waiting_since: "\u202eyesterday" })).toMatchObject([{ seconds: null }]);
});
