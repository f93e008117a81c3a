import { expect, test } from "vitest";
import type { FailureCounts, FailureGroup, Now } from "../src/generated/events";
import { sameRun } from "../src/state/command";
import { EMPTY, reduce } from "../src/state/reduce";
import { shorterLimit, stallOf } from "../src/state/stall";
import { LIVE, viewAt } from "../src/state/view";
import { sampleRun } from "./sample-run";

const CALM = { lost: false, waiting_for: null, in_flight: 2, usual_s: 0.5, timeouts: 0, no_result_s: 1, longest: [] };
const LIMIT_S = 300;

function viewOf(changed: Partial<Now>, timedOut = 0) {
  const { events } = sampleRun({ driven: true });
  const now = { ...(events.find(({ event }) => event === "now") as Now), ...CALM, ...changed };
  const failures = events.find(({ event }) => event === "failures") as FailureCounts;
  const [group] = failures.groups as [FailureGroup];
  const groups = timedOut === 0 ? [] : [{ ...group, type: "timeout", status: "timeout" as const, count: timedOut }];
  return viewAt(reduce(EMPTY, [...events, now, { ...failures, groups }]), LIVE);
}

function waiting(seconds: number) {
  return [{ row: "val 7", candidate: "2", seconds, limit_s: LIMIT_S, endpoint: "http://127.0.0.1:8100" }];
}

test("Examples that take a few times as long as usual are not stuck", () => {
  expect(stallOf(viewOf({}))).toBeNull();
  expect(stallOf(viewOf({ no_result_s: 20, longest: waiting(20) }))).toBeNull();
  expect(stallOf(viewOf({ usual_s: 60, no_result_s: 400, longest: waiting(400) }))).toBeNull();
  expect(stallOf(viewOf({ no_result_s: 2, longest: waiting(200) })), "others bring results").toBeNull();
  expect(stallOf(viewOf({ no_result_s: 200, longest: waiting(12) })), "reflection took the time").toBeNull();
});

test("Examples that wait ten times as long as usual are stuck, sooner if others timed out before", () => {
  expect(stallOf(viewOf({ no_result_s: 40, longest: waiting(40) }))).toMatchObject({ seconds: 40, timeouts: 0 });
  expect(stallOf(viewOf({ no_result_s: 12, longest: waiting(12) }, 2))).toMatchObject({ seconds: 12 });
  expect(stallOf(viewOf({ usual_s: 9, no_result_s: 40, longest: waiting(40) }))).toBeNull();
});

test("A time-out ends no stall: time-outs in a row state one while the next examples have only begun", () => {
  const stall = stallOf(viewOf({ no_result_s: 640, timeouts: 2, longest: waiting(11) }, 2));
  expect(stall).toMatchObject({ seconds: 640, timeouts: 2, recorded: { count: 2 }, inFlight: 2 });
});

test("A run without any result yet is stuck by the time of its longest example", () => {
  const none = { last_result: null, no_result_s: null, usual_s: null };
  expect(stallOf(viewOf({ ...none, longest: waiting(60) }))).toBeNull();
  expect(stallOf(viewOf({ ...none, longest: waiting(130) }))).toMatchObject({ seconds: 130, since: null });
});

test("A run that is lost or waits for a server is not stuck at its examples", () => {
  const stuck = { no_result_s: 640, timeouts: 2 };
  expect(stallOf(viewOf({ ...stuck, lost: true }))).toBeNull();
  expect(stallOf(viewOf({ ...stuck, waiting_for: "no endpoint is left" }))).toBeNull();
  expect(stallOf(viewOf({ ...stuck, in_flight: 0 }))).toBeNull();
});

test("The limit that is suggested lets usual examples end, and is shorter than the one in force", () => {
  expect(shorterLimit(viewOf({ longest: waiting(40) }))).toBe(10);
  expect(shorterLimit(viewOf({ usual_s: 2.5, longest: waiting(40) }))).toBe(25);
  expect(shorterLimit(viewOf({ usual_s: 40, longest: waiting(40) }))).toBeNull();
  expect(shorterLimit(viewOf({ usual_s: null }))).toBeNull();
});

test("Commands are those of the run and the store that are shown", () => {
  const shown = [{ command: "/opt/evolverpc show 4f2 --store 'my runs.db'", what: "" }];
  expect(sameRun("resume", shown, "--example-timeout-s 10")).toBe(
    "/opt/evolverpc resume 4f2 --example-timeout-s 10 --store 'my runs.db'",
  );
  expect(sameRun("resume", [])).toBeUndefined();
});
