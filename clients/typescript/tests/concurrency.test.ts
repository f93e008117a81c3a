import { expect, it } from "vitest";
import { batchProgramOf, call, evaluate, gate, ONE, programOf, raw, served } from "./support.js";

it("overlapping evaluations never mix candidates, and a program that changes candidate and row affects no other example", async () => {
  const run = async (row: any, candidate: Record<string, string>) => {
    const seen = `${candidate.rules} ${row.turn}`;
    row.turn = "spoilt";
    await new Promise((resolve) => setTimeout(resolve, seen.length % 5));
    const still = candidate.rules;
    candidate.rules = "spoilt";
    return { seen, still };
  };
  const turns = Array.from({ length: 40 }, (_, turn) => turn);
  const datasets = { train: turns.map((turn) => ({ turn })) };
  const server = await served(programOf({ datasets, run }), { concurrency: 8 });
  const ask = (turn: number) => {
    const batch = [0, turn].map((id) => ({ id: String(id), split: "train" }));
    return call(server, "evaluate", { candidate: { rules: `rules ${turn}` }, batch });
  };
  for (const [turn, { result }] of (await Promise.all(turns.map(ask))).entries()) {
    const expected = [0, turn].map((id) => ({ seen: `rules ${turn} ${id}`, still: `rules ${turn}` }));
    expect(result.results.map(({ output }: any) => output)).toEqual(expected);
  }
});

it("examples beyond the queue are refused as overloaded, and room is released", async () => {
  const { opened, open } = gate();
  const server = await served(programOf({ run: () => opened }), { concurrency: 1, maxQueue: 1 });
  for (const call_id of ["runs", "waits"]) {
    expect((await call(server, "evaluate", ONE, { call_id, wait_s: 0 })).result.pending).toBeDefined();
  }
  const { error } = await call(server, "evaluate", ONE);
  expect(error).toMatchObject({ code: -32030, data: { retryable: true, retry_after_s: 1 } });
  open();
  await call(server, "get_result", { call_id: "waits", wait_s: 10 });
  expect((await evaluate(server, [1]))[0].status).toBe("ok");
});

it("a batch larger than all the room is admitted when nothing else runs, also after a call that failed", async () => {
  const validate = (value: unknown) => (typeof value === "number" ? { value } : { issues: [{ message: "no number" }] });
  const rowSchema = { "~standard": { version: 1 as const, vendor: "test", validate } };
  const server = await served(programOf({ rowSchema }), { concurrency: 1, maxQueue: 0 });
  expect((await call(server, "evaluate", ONE)).error.code).toBe(-32602);
  expect(await evaluate(server, [1, 2, 3])).toHaveLength(3);
});

it("a batch that waits for room is not overtaken; once cancelled it holds up none behind it", async () => {
  const { opened, open } = gate();
  const program = batchProgramOf({
    evaluate: async (_, batch) => {
      if (batch[0]?.data === 1) await opened;
      return batch.map(() => 1);
    },
  });
  const server = await served(program, { concurrency: 2 });
  for (const data of [[1], [2, 2], [3]]) {
    const params = { candidate: { rules: "" }, batch: data.map((each, at) => ({ id: String(at), data: each })) };
    await call(server, "evaluate", params, { call_id: String(data[0]), wait_s: 0 });
  }
  expect((await call(server, "get_result", { call_id: "3", wait_s: 0.2 })).result.pending).toBeDefined();
  await call(server, "cancel", { call_id: "2" });
  expect((await call(server, "get_result", { call_id: "3", wait_s: 2 })).result.results).toHaveLength(1);
  open();
});

it("examples that never wait do not keep the server from answering others", async () => {
  const run = () => {
    const until = performance.now() + 5;
    while (performance.now() < until);
  };
  const server = await served(programOf({ run }));
  const order: string[] = [];
  const long = evaluate(server, Array(150).fill(0)).then(() => order.push("evaluated"));
  const health = raw(server, { path: "/health", method: "GET" }).then(() => order.push("healthy"));
  await Promise.all([long, health]);
  expect(order).toEqual(["healthy", "evaluated"]);
});
