import { expect, it } from "vitest";
import { floatText } from "../src/evaluate/reflection.js";
import { batchProgramOf, call, evaluate, programOf, served } from "./support.js";

const traced = { capture_traces: true };

function reflect(server: any, data: unknown[], results: unknown[]): Promise<any> {
  const batch = data.map((item, at) => ({ id: String(at), data: item }));
  const params = { candidate: { rules: "" }, eval_batch: { batch, results }, components_to_update: ["rules"] };
  return call(server, "make_reflective_dataset", params);
}

it("a group gets references, which reflect like the trajectories themselves", async () => {
  const run = (data: unknown, _: unknown, { trace }: any) => {
    trace.push({ looked: data });
    return data;
  };
  const server = await served(programOf({ run }));
  const inline = await evaluate(server, ["x", "y"], traced);
  const refs = await evaluate(server, ["x", "y"], traced, { group: "g" });
  for (const result of refs) {
    expect(result.trajectory_ref.startsWith(`${server.instanceId}/`)).toBe(true);
    expect(result).not.toHaveProperty("trajectory");
  }
  const { result } = await reflect(server, ["x", "y"], refs);
  expect(result).toEqual((await reflect(server, ["x", "y"], inline)).result);
  expect(result.dataset.rules[0]).toEqual({
    Inputs: "x",
    "Generated Outputs": "x",
    Feedback: "Score: 1.0",
    Trace: [{ looked: "x" }],
  });
});

it("whole groups are evicted, the least recently used first, and the lost references are named", async () => {
  const server = await served(programOf(), { maxTraceBytes: 3000 });
  const first = await evaluate(server, ["a".repeat(500), "b".repeat(200)], traced, { group: "first" });
  const second = await evaluate(server, ["c".repeat(700)], traced, { group: "second" });
  const { error } = await reflect(server, ["a", "b", "c"], [...first, ...second]);
  expect(error.code).toBe(-32024);
  expect(error.data.refs).toEqual(first.map(({ trajectory_ref }) => trajectory_ref));
  expect((await reflect(server, ["c"], second)).result).toBeDefined();
});

it("a trajectory too large to keep is sent inline", async () => {
  const server = await served(programOf(), { maxTraceBytes: 100 });
  const [result] = await evaluate(server, ["x"], traced, { group: "g" });
  expect(result).toMatchObject({ trajectory: { data: "x" } });
});

it("references of another instance have expired", async () => {
  const sent = { status: "ok", score: 1, seconds: 0, trajectory_ref: "elsewhere/1" };
  expect((await reflect(await served(programOf()), ["x"], [sent])).error).toMatchObject({
    code: -32024,
    data: { refs: ["elsewhere/1"] },
  });
});

it("the default records equal the Python ones", async () => {
  const sent = [
    { status: "ok", score: 0.5, output: { a: 1 }, seconds: 0 },
    { status: "ok", score: 1, output: "out", feedback: "well done", seconds: 0, trajectory: { data: 1 } },
    { status: "program_error", score: null, seconds: 0, error: { type: "E", message: "m", traceback: "at x" } },
    { status: "timeout", score: null, seconds: 0, error: { type: "timeout", message: "slow" } },
    { status: "rollout", score: null, output: 2, seconds: 0 },
  ];
  const { result } = await reflect(await served(programOf()), [1, 2, 3, 4, 5], sent);
  expect(result.dataset.rules).toEqual([
    { Inputs: 1, "Generated Outputs": { a: 1 }, Feedback: "Score: 0.5" },
    { Inputs: 2, "Generated Outputs": "out", Feedback: "well done" },
    { Inputs: 3, "Generated Outputs": "", Feedback: "The program failed: E: m\nat x" },
    { Inputs: 4, "Generated Outputs": "", Feedback: "The program failed: timeout: slow" },
    { Inputs: 5, "Generated Outputs": 2, Feedback: "Score: None" },
  ]);
});

it.each([
  [0, "0.0"],
  [-0, "-0.0"],
  [1, "1.0"],
  [-3.5, "-3.5"],
  [0.1 + 0.2, "0.30000000000000004"],
  [1e15, "1000000000000000.0"],
  [1e16, "1e+16"],
  [123456789012345680000, "1.2345678901234568e+20"],
  [0.0001, "0.0001"],
  [0.00001, "1e-05"],
  [1.5e-7, "1.5e-07"],
  [1e-300, "1e-300"],
  [1e100, "1e+100"],
])("the score %d reads %s, as it does in Python", (value, text) => {
  expect(floatText(value)).toBe(text);
});

it("rows that are not shared are listed by id and can be evaluated", async () => {
  const server = await served(programOf({ datasets: { train: ["held"] } }), { shareRows: false });
  const { result } = await call(server, "list_examples", { split: "train" });
  expect(result).toEqual({ examples: [{ id: "0", split: "train" }], total: 1 });
  const params = { candidate: { rules: "" }, batch: result.examples };
  expect((await call(server, "evaluate", params)).result.results[0].output).toBe("held");
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
