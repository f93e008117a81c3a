import { expect, it } from "vitest";
import { SetupError } from "../src/base/configuration.js";
import type { CallContext, ScoreProgram } from "../src/program/program.js";
import { serve } from "../src/server/serve.js";
import { call, evaluate, gate, programOf, raw, served } from "./support.js";

const rollout = { status: "rollout", score: null, output: "x", seconds: 9 };

function judge(parts: Partial<ScoreProgram<any, any>> = {}): ScoreProgram<any, any> {
  return { name: "judge", score: (example, output) => (output === example.want ? [1, "right"] : 0), ...parts };
}

function asked(outputs: unknown[], data: object = { want: "x" }) {
  const batch = outputs.map((_, at) => ({ id: String(at), data }));
  return { batch, results: outputs.map((output) => ({ ...rollout, output })) };
}

it("a program that has `score` alone is served, without components, and offers only that", async () => {
  let line = "";
  const server = await serve<{ want: string }, string>(
    { name: "judge", score: (example, output) => Number(output === example.want) },
    { announce: (printed) => (line = printed), ownsProcess: false },
  );
  try {
    const { result } = await call(server, "discover");
    expect(result.program).toMatchObject({ name: "judge", components: [], seed_candidate: {} });
    expect(result.capabilities).toContain("scoring");
    expect(result.capabilities).not.toContain("proposals");
    expect(line).toContain("judge (typescript, only scores) ready");
    const { results } = (await call(server, "score", asked(["x", "y"]))).result;
    expect(results.map(({ score }: any) => score)).toEqual([1, 0]);
    expect((await raw(server, { path: "/health", method: "GET" })).status).toBe(200);
  } finally {
    await server.close();
  }
});

it("running an example there is refused with a clear message", async () => {
  const server = await served(judge());
  const some = { candidate: {}, batch: [{ id: "a", data: 1 }] };
  expect((await call(server, "evaluate", some)).error).toMatchObject({
    code: -32025,
    message: "the program has no `run`: it only scores the outputs of other programs",
    data: { stage: "evaluate", retryable: false },
  });
  expect((await call(server, "evaluate", { candidate: {}, batch: [] })).result).toEqual({ results: [] });
  expect((await call(server, "evaluate", { ...some, candidate: { a: "" } })).error.code).toBe(-32022);
});

it("a program without its `run` is an error, not a program that only scores", async () => {
  const forgetful = { name: "x", seedCandidate: { a: "" }, score: () => 1 };
  const failure = await serve(forgetful as never, { ownsProcess: false }).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(SetupError);
  expect((failure as Error).message).toContain("one that only scores has no `seedCandidate` either");
  const unset = { name: "x", run: undefined, score: () => 1 };
  await expect(serve(unset as never, { ownsProcess: false })).rejects.toThrow("the program needs a function");
});

it("the results of a program without `score` are scored by another", async () => {
  const { score: _, ...unscored } = programOf({ run: () => "x" });
  const results = await evaluate(await served(unscored), [{ want: "x" }], { capture_traces: true });
  expect(results[0]).toMatchObject({ status: "rollout", score: null, output: "x" });
  const before = {
    feedback: "old",
    component_feedback: { rules: "old" },
    objective_scores: { old: 1 },
    usage: { calls: 9 },
  };
  const came = { ...results[0], metric_calls: 2, hosts: { "a.example": { succeeded: 1 } } };
  const scoring = { score: 1, feedback: "right", component_feedback: { rules: "new" }, objective_scores: { new: 0.5 } };
  const score = (_row: any, _output: any, { usage }: any) => {
    usage.calls = 1;
    return scoring;
  };
  const asked = { batch: [{ id: "0", data: { want: "x" } }], results: [{ ...came, ...before }] };
  const [scored] = (await call(await served(judge({ score })), "score", asked)).result.results;
  const seconds = expect.any(Number);
  expect(scored).toEqual({ ...came, ...scoring, status: "ok", usage: { calls: 1 }, seconds });
});

it("rows that the scorer holds are scored by id", async () => {
  const server = await served(judge({ datasets: { val: [{ want: "y" }, { want: "x" }] } }));
  const batch = [
    { id: "1", split: "val" },
    { id: "z", data: { want: "x" } },
  ];
  const { results } = (await call(server, "score", { batch, results: [rollout, rollout] })).result;
  expect(results.map(({ score }: any) => score)).toEqual([1, 1]);
  const unknown = { batch: [{ id: "7", split: "val" }], results: [rollout] };
  expect((await call(server, "score", unknown)).error).toMatchObject({ code: -32023, data: { ids: ["7"] } });
});

it("a failing scorer fails one example each and reports its cost", async () => {
  const ways: Record<string, () => unknown> = {
    throws: () => {
      throw new RangeError("no verdict");
    },
    transient: () => Promise.reject(Object.assign(new Error("later"), { retryable: true })),
    hangs: () => new Promise(() => {}),
    unscored: () => undefined,
    fine: () => 1,
  };
  const score: ScoreProgram["score"] = (_, output, { usage }) => {
    usage.calls = 1;
    return ways[output as string]?.() as number;
  };
  const server = await served(judge({ score }), { exampleTimeoutS: 0.3 });
  const outputs = Object.keys(ways);
  const { results } = (await call(server, "score", asked(outputs))).result;
  expect(results.map(({ status }: any) => status)).toEqual([
    "program_error",
    "infra_error",
    "timeout",
    "program_error",
    "ok",
  ]);
  expect(results[0].error).toMatchObject({ type: "RangeError", message: "no verdict" });
  expect(results[0].error.traceback).toContain("scoring.test.ts");
  expect(results[2].error.type).toBe("timeout");
  expect(results[3].error.type).toBe("invalid_result");
  const [raised, refused, , unscored, fine] = results; // the one that hangs may have been scored twice
  for (const result of [raised, refused, unscored, fine]) expect(result.usage).toEqual({ calls: 1 });
  expect(results.map(({ output }: any) => output)).toEqual(outputs);
});

it("a call may lower the deadline of its scores", async () => {
  const server = await served(judge({ score: () => new Promise(() => {}) }));
  const { results } = (await call(server, "score", asked(["x"]), { example_timeout_s: 0.1 })).result;
  expect(results[0]).toMatchObject({ status: "timeout", output: "x" });
});

it("the costs of running and of scoring are added up", async () => {
  const program = programOf({
    run: (_, __, { usage }) => Object.assign(usage, { calls: 2, input_tokens: 10 }),
    score: (example, _, { usage }) => {
      Object.assign(usage, { calls: 1, cost_usd: 0.25 });
      if (example === "bad") throw new Error("no verdict");
      return 1;
    },
  });
  const results = await evaluate(await served(program), ["good", "bad"]);
  for (const { usage } of results) expect(usage).toEqual({ calls: 3, input_tokens: 10, cost_usd: 0.25 });
});

it("a scoring call reports progress, is idempotent, and can be cancelled", async () => {
  const begun = gate();
  const aborted = gate();
  let times = 0;
  const score = (example: any, _: unknown, { signal }: CallContext) => {
    times++;
    if (example.want === "now") return 1;
    begun.open();
    signal.addEventListener("abort", () => aborted.open());
    return new Promise<number>(() => {});
  };
  const server = await served(judge({ score }));
  const quick = asked(["x"], { want: "now" });
  const first = await call(server, "score", quick, { call_id: "run/1/1" });
  expect(await call(server, "score", quick, { call_id: "run/1/1" })).toEqual(first);
  expect(times).toBe(1);

  const params = asked(["x"], { want: "never" });
  const pending = { call_id: "c", progress: { done: 0, total: 1 } };
  expect((await call(server, "score", params, { call_id: "c", wait_s: 0 })).result).toEqual({ pending });
  await begun.opened;
  expect((await call(server, "cancel", { call_id: "c" })).result).toEqual({ status: "cancelled" });
  await aborted.opened;
  expect((await call(server, "get_result", { call_id: "c" })).error.code).toBe(-32027);
});
