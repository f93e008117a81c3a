import { expect, it } from "vitest";
import { batchProgramOf, call, evaluate, programOf, served } from "./support.js";

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

it("a group gets references, for which the trajectories can be fetched", async () => {
  const server = await served(programOf({ run: tracing }));
  const refs = await evaluate(server, ["x", "y"], traced, { group: "g" });
  for (const result of refs) {
    expect(result.trajectory_ref.startsWith(`${server.instanceId}/`)).toBe(true);
    expect(result).not.toHaveProperty("trajectory");
  }
  const { result } = await fetched(server, refs.reverse());
  expect(result.traces).toEqual([{ trajectory: [{ looked: "y" }] }, { trajectory: [{ looked: "x" }] }]);
});

it("whole groups are evicted, the least recently used first, and the lost references are named", async () => {
  const server = await served(programOf({ run: tracing }), { maxTraceBytes: 3000 });
  const first = await evaluate(server, ["a".repeat(900), "b".repeat(600)], traced, { group: "first" });
  const second = await evaluate(server, ["c".repeat(900)], traced, { group: "second" });
  const { error } = await fetched(server, [...first, ...second]);
  expect(error.code).toBe(-32024);
  expect(error.data.refs).toEqual(first.map(({ trajectory_ref }) => trajectory_ref));
  expect((await fetched(server, second)).result).toBeDefined();
  expect((await fetched(server, [{ trajectory_ref: "elsewhere/1" }])).error).toMatchObject({
    code: -32024,
    data: { refs: ["elsewhere/1"] },
  });
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

it("a program's own records get data and trajectories in place of ids and refs", async () => {
  let seen: any;
  const server = await served(
    batchProgramOf({
      datasets: { train: [{ text: "held" }] },
      evaluate: () => [{ score: 1, trajectory: { steps: 3 } }],
      makeReflectiveDataset: (_, evalBatch) => {
        seen = evalBatch;
        return { rules: [{ Feedback: "f" }] };
      },
    }),
  );
  const batch = [{ id: "0", split: "train" }];
  const candidate = { rules: "" };
  const evaluated = await call(server, "evaluate", { candidate, batch, capture_traces: true }, { group: "g" });
  const params = {
    candidate,
    eval_batch: { batch, results: evaluated.result.results },
    components_to_update: ["rules"],
  };
  expect((await call(server, "make_reflective_dataset", params)).result.dataset).toEqual({
    rules: [{ Feedback: "f" }],
  });
  expect(seen.batch).toEqual([{ id: "0", data: { text: "held" } }]);
  expect(seen.results[0].trajectory).toEqual({ steps: 3 });
});
