import fc from "fast-check";
import { expect, test } from "vitest";
import type { PageEvent } from "../src/generated/events";
import { EMPTY, type RowResults, reduce, type State } from "../src/state/reduce";
import { LIVE, viewAt } from "../src/state/view";
import { events } from "./arbitrary-events";

/** The state without the order in which its maps were filled and the room that its columns have left. */
function canonical({ latest, kept, results }: State) {
  const sorted = (facts: ReadonlyMap<unknown, unknown>) =>
    [...facts].sort(([a], [b]) => (String(a) < String(b) ? -1 : 1));
  return {
    latest,
    kept: Object.values(kept).map(sorted),
    results: sorted(results).map(([digest, found]) => {
      const { scores, numbers } = found as RowResults;
      return [digest, [...numbers].flatMap((number, row) => (number < 0 ? [] : [[row, number, scores[row]]]))];
    }),
  };
}

function isKnownAt(event: PageEvent, n: number): PageEvent | null {
  if (event.event === "results") {
    const kept = event.numbers.flatMap((number, at) => (number < n ? [at] : []));
    const pick = <Item>(items: readonly Item[]) => kept.map((at) => items[at] as Item);
    return {
      ...event,
      candidates: pick(event.candidates),
      rows: pick(event.rows),
      numbers: pick(event.numbers),
      scores: pick(event.scores),
    };
  }
  if (event.event === "now") return null;
  const at = "at" in event ? event.at : null;
  if (at !== null && at > n) return null;
  if (event.event !== "proposal" || event.decided === null || event.decided <= n) return event;
  return { ...event, decided: null, outcome: "pending", after: null, why: null, candidate: null };
}

test("Any batches of the same events give the same state", () => {
  fc.assert(
    fc.property(events, fc.nat(40), (list, cut) => {
      const whole = canonical(reduce(EMPTY, list));
      const part = reduce(EMPTY, list.slice(0, cut));
      const before = canonical(part);
      expect(canonical(reduce(part, list.slice(cut)))).toEqual(whole);
      expect(canonical(part)).toEqual(before); // not changed in place
    }),
    { numRuns: 300 },
  );
});

test("The view at a place is that of the facts up to it alone", () => {
  // A fact has one place: a later event of the same key repeats it.
  const placed = events.map((list) => {
    const places = new Map<string, number | null>();
    return list.map((event) => {
      const key = keyOf(event);
      if (key === null || !("at" in event)) return event;
      if (!places.has(key)) places.set(key, event.at);
      return { ...event, at: places.get(key) } as PageEvent;
    });
  });
  fc.assert(
    fc.property(placed, fc.nat(40), (list, n) => {
      const cells = new Map<string, number>();
      const fixed = list.map((event) => {
        if (event.event !== "results") return event;
        const numbers = event.numbers.map((number, at) => {
          const cell = `${event.candidates[at]} ${event.rows[at]}`;
          if (!cells.has(cell)) cells.set(cell, number);
          return cells.get(cell) as number;
        });
        return { ...event, numbers };
      });
      const filtered = fixed.map((event) => isKnownAt(event, n)).filter((event) => event !== null);
      const trimmed = (events: PageEvent[]) => {
        const view = viewAt(reduce(EMPTY, events), n);
        return {
          ...view,
          latest: { ...view.latest, now: undefined },
          front: [...view.front].sort(),
          steers: view.steers.filter(({ at }) => at !== null),
          partial: view.partial.map(({ scores, ...rest }) => ({ ...rest, scores: [...scores].slice(0, 6) })),
        };
      };
      expect(trimmed(fixed)).toEqual(trimmed(filtered));
    }),
    { numRuns: 300 },
  );
});

function keyOf(event: PageEvent): string | null {
  switch (event.event) {
    case "candidate":
      return `candidate ${event.index}`;
    case "proposal":
    case "steer":
      return `${event.event} ${event.key}`;
    case "steered":
      return `steered ${event.number}`;
    default:
      return null;
  }
}

test("The best candidate of a run that has ended is the one that its end states, also if it is the seed", () => {
  const candidate = { event: "candidate", index: 1, at: 1, digest: "d1", scores: [1], front: [1], best: 1 };
  const ended = [candidate, { event: "run", driven: false }, { event: "summary", best: 0 }] as unknown as PageEvent[];
  expect(viewAt(reduce(EMPTY, ended), LIVE).best).toBe(0);
  expect(viewAt(reduce(EMPTY, ended), 1).best).toBe(1);
});

test("A thousand candidates on a thousand rows are reduced and viewed in bounded time", () => {
  const scores = Array.from({ length: 1000 }, (_, row) => ((row * 7919) % 11) / 10);
  const list = Array.from({ length: 1000 }, (_, index) => ({
    event: "candidate",
    index,
    at: index,
    digest: `d${index}`,
    parents: index ? [index - 1] : [],
    score: index / 1000,
    metric_calls: index,
    scores,
    texts: {},
    front: Array.from({ length: index + 1 }, (_, each) => each),
    best: index,
  })) as unknown as PageEvent[];
  reduce(EMPTY, list.slice(0, 50)); // compiled
  const began = performance.now();
  const view = viewAt(reduce(EMPTY, list), LIVE);
  expect(view.best).toBe(999);
  expect(view.front.size).toBe(1000);
  expect(performance.now() - began).toBeLessThan(10_000);
});
