import { expect, it } from "vitest";
import { evaluate, programOf, served } from "./support.js";

const LIMIT_S = 0.5;

/** Keeps the event loop to itself, as a regular expression can. */
function hold(seconds: number): void {
  const until = performance.now() + seconds * 1000;
  while (performance.now() < until);
}

interface Work {
  waits?: number;
  holds?: number;
}

/** The results of a program's examples, each of which waits so many seconds and then holds the loop so many. */
async function results(work: Work[]): Promise<{ results: any[]; runs: number[] }> {
  const runs = work.map(() => 0);
  const run = async (at: number, _: unknown, { usage }: { usage: { calls?: number | null } }) => {
    usage.calls = 1;
    runs[at] = (runs[at] ?? 0) + 1;
    const { waits = 0, holds = 0 } = work[at] as Work;
    await new Promise((resolve) => setTimeout(resolve, waits * 1000));
    hold(holds);
    return at;
  };
  const server = await served(programOf({ run }), { exampleTimeoutS: LIMIT_S });
  return { results: await evaluate(server, [...work.keys()]), runs };
}

it("an example that blocks the event loop past its limit times out, and the examples it delayed do not", async () => {
  const { results: given } = await results([{ waits: 0.05 }, { waits: 0.01, holds: 0.8 }, { waits: 0.1 }, {}]);
  expect(given.map(({ status }) => status)).toEqual(["ok", "timeout", "ok", "ok"]);
  expect(given[1].error.message).toBe("ran longer than 0.5 s while no other example ran in its process");
  expect(given[1].usage).toEqual({ calls: 2 });
});

it("an example that waits too long on a free event loop is a time-out at once", async () => {
  const { results: given, runs } = await results([{ waits: 60 }, { waits: 0.1 }]);
  expect(given.map(({ status }) => status)).toEqual(["timeout", "ok"]);
  // On a busy machine the loop may not be free, regardless of the program.
  const [message, most] =
    runs[0] === 1 ? ["while its process was responsive", 1] : ["while no other example ran in its process", 2];
  expect(given[0].error.message).toBe(`ran longer than 0.5 s ${message}`);
  expect(runs).toEqual([most, expect.any(Number)]);
});

it("time for which others blocked the event loop is added to the deadline", async () => {
  const { results: given } = await results([{ waits: LIMIT_S - 0.02 }, { waits: 0.1, holds: LIMIT_S / 14 }]);
  expect(given.map(({ status }) => status)).toEqual(["ok", "ok"]);
});
