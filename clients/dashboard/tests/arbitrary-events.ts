/** Arbitrary events of a run. */

import fc from "fast-check";
import type { PageEvent } from "../src/generated/events";

const at = fc.nat(40);
const score = fc.option(fc.constantFrom(0, 0.25, 0.5, 1));

const shapes: fc.Arbitrary<Record<string, unknown>>[] = [
  fc.record({
    event: fc.constant("rows"),
    start: fc.constantFrom(0, 3),
    ids: fc.constant(["a", "b", "c"]),
    labels: fc.constant(["one", "", "three"]),
    total: fc.constant(6),
  }),
  fc.nat(5).chain((index) =>
    fc.record({
      event: fc.constant("candidate"),
      index: fc.constant(index),
      at,
      digest: fc.constant(`d${index}`),
      parents: fc.constant(index ? [0] : []),
      score: fc.constantFrom(0.1, 0.5, 0.9),
      metric_calls: fc.nat(100),
      scores: fc.array(score, { minLength: 6, maxLength: 6 }),
      texts: fc.constant({}),
      front: fc.subarray([0, 1, 2, 3]),
      best: fc.nat(3),
    }),
  ),
  fc.record({ event: fc.constant("steered"), at, number: at, front: fc.subarray([0, 1, 2, 3]), best: fc.nat(3) }),
  fc.record({ event: fc.constant("budget"), at, metric_calls: fc.nat(200) }),
  fc.record({
    event: fc.constant("proposal"),
    key: fc.constantFrom("p1", "p2", "p3"),
    at,
    decided: fc.option(at),
    outcome: fc.constantFrom("pending", "kept", "rejected", "raced_out"),
    before: score,
    after: score,
    why: fc.option(fc.constant("why")),
    candidate: fc.option(fc.nat(3)),
  }),
  fc
    .array(fc.record({ digest: fc.constantFrom("d0", "d1", "x"), row: fc.nat(5), number: at, score }), { maxLength: 4 })
    .map((cells) => ({
      event: "results",
      candidates: cells.map((cell) => cell.digest),
      rows: cells.map((cell) => cell.row),
      numbers: cells.map((cell) => cell.number),
      scores: cells.map((cell) => cell.score),
    })),
  fc.record({ event: fc.constant("mutation"), at }),
  fc.record({ event: fc.constant("steer"), key: fc.constantFrom("s1", "s2"), at: fc.option(at) }),
  fc.nat(40).map((at) => ({ event: "failure", iteration: at, at })),
  fc.record({ event: fc.constant("now"), metric_calls: fc.nat(200) }),
  fc.record({ event: fc.constantFrom("run", "spending", "position", "store"), some: fc.nat() }),
];

export const events: fc.Arbitrary<PageEvent[]> = fc.array(fc.oneof(...shapes), {
  maxLength: 40,
}) as unknown as fc.Arbitrary<PageEvent[]>;
