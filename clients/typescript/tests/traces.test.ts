import { expect, it } from "vitest";
import { call, evaluate, programOf, served } from "./support.js";

const traced = { capture_traces: true };

function reflect(server: any, data: unknown[], results: unknown[]): Promise<any> {
  const batch = data.map((item, at) => ({ id: String(at), data: item }));
  const params = { candidate: { rules: "" }, eval_batch: { batch, results }, components_to_update: ["rules"] };
  return call(server, "make_reflective_dataset", params);
}

const fetched = (server: any, results: any[]): Promise<any> =>
  call(server, "get_traces", { refs: results.map(({ trajectory_ref }) => trajectory_ref) });

const tracing = (data: unknown, _: unknown, { trace }: any) => {
  trace.push({ looked: data });
  return data;
};

it("whole groups are evicted, the least recently used first, and the lost references are named", async () => {
  const server = await served(programOf({ run: tracing }), { maxTraceBytes: 3000 });
  const first = await evaluate(server, ["a".repeat(900), "b".repeat(600)], traced, { group: "first" });
  const second = await evaluate(server, ["c".repeat(900)], traced, { group: "second" });
  const { error } = await fetched(server, [...first, ...second]);
  expect(error.code).toBe(-32024);
  expect(error.data.refs).toEqual(first.map(({ trajectory_ref }) => trajectory_ref));
  const third = await evaluate(server, ["d".repeat(600)], traced, { group: "third" });
  expect((await fetched(server, second)).result).toBeDefined(); // and is used by that
  const fourth = await evaluate(server, ["e".repeat(900)], traced, { group: "fourth" });
  expect((await fetched(server, [...second, ...fourth])).result).toBeDefined();
  expect((await fetched(server, third)).error.code).toBe(-32024);
  expect((await fetched(server, [{ trajectory_ref: "elsewhere/1" }])).error).toMatchObject({
    code: -32024,
    data: { refs: ["elsewhere/1"] },
  });
});

it("a trajectory that is kept does not count as a part of its result", async () => {
  const server = await served(programOf({ run: tracing }), { maxResultBytes: 1500 });
  const [result] = await evaluate(server, ["x".repeat(900)], traced, { group: "g" });
  expect(result).toMatchObject({ status: "ok", trajectory_ref: expect.any(String) });
});

it("a trajectory too large to keep is sent inline, and a program that records none has none", async () => {
  const server = await served(programOf({ run: tracing }), { maxTraceBytes: 100 });
  const [result] = await evaluate(server, ["x"], traced, { group: "g" });
  expect(result).toMatchObject({ trajectory: [{ looked: "x" }] });
  const [untraced] = await evaluate(await served(programOf()), ["x"], traced, { group: "g" });
  expect(Object.keys(untraced).filter((name) => name.startsWith("trajectory"))).toEqual([]);
});

it("records are made by the program alone", async () => {
  const server = await served(programOf());
  const sent = { status: "ok", score: 1, seconds: 0 };
  expect((await reflect(server, ["x"], [sent])).error.code).toBe(-32601);
});

it("rows that are not shared are listed by id, can be evaluated, and come with their traces", async () => {
  const server = await served(programOf({ datasets: { train: ["held"] } }), { shareRows: false });
  const { result } = await call(server, "list_examples", { split: "train" });
  expect(result).toEqual({ examples: [{ id: "0", split: "train" }], total: 1 });
  const params = { candidate: { rules: "" }, batch: result.examples };
  const { results } = (await call(server, "evaluate", { ...params, ...traced }, { group: "g" })).result;
  expect(results[0].output).toBe("held");
  expect((await fetched(server, results)).result.traces).toEqual([{ trajectory: null, data: "held" }]);
});
