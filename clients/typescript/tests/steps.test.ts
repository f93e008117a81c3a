// Steps of programs of several components: what is recorded, from calls of a real server.
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it, onTestFinished, vi } from "vitest";
import type { RunContext } from "../src/program/program.js";
import { step } from "../src/steps/steps.js";
import { answerOf, batchProgramOf, call, evaluate, gate, ONE, programOf, ranProgram, served } from "./support.js";

const traced = { capture_traces: true };
const seconds = expect.any(Number);

type Run = (data: any, context: RunContext) => unknown;

/** The results of examples of a program whose components are `rules`, and what was logged. */
function ran(run: Run, data?: unknown[], { params, limitS = 300, ...parts }: any = {}) {
  const program = programOf({ run: (example, _, context) => run(example, context), ...parts });
  return ranProgram(program, data, params, { exampleTimeoutS: limitS });
}

it("a step holds inputs, outputs and seconds, and returns the result as it is", async () => {
  const { result, logged } = await ran(async (data, context) => {
    const now: number = context.step("rules", { data }, () => data + 1);
    const later: string = await step({ name: "tool" }, { now }, async () => `${now}!`);
    return later;
  });
  expect(result.output).toBe("1!");
  expect(result.trajectory).toEqual({
    steps: [
      { component: "rules", inputs: { data: 0 }, outputs: 1, seconds },
      { name: "tool", inputs: { now: 1 }, outputs: "1!", seconds },
    ],
  });
  expect(logged).toEqual([]);
});

it("steps within a step nest across awaits, and parallel steps stay in the order in which they started", async () => {
  const { steps } = await ran(async (_, context) => {
    await step({ name: "all" }, {}, async () => {
      await sleep(1);
      await Promise.all([3, 2, 1].map((at) => step({ name: `tool ${at}` }, {}, () => sleep(at * 5))));
      context.step("rules", {}, () => step({ name: "inner" }, {}, () => 1));
    });
    return context.step({ name: "after" }, {}, () => 1);
  });
  expect(steps.map(({ name }: any) => name)).toEqual(["all", "after"]);
  const [all] = steps;
  expect(all.steps.map(({ name, component }: any) => name ?? component)).toEqual([
    "tool 3",
    "tool 2",
    "tool 1",
    "rules",
  ]);
  expect(all.steps[3].steps).toMatchObject([{ name: "inner", outputs: 1 }]);
  expect(all.steps[0].seconds).toBeLessThanOrEqual(all.seconds);
});

it("a step that starts after the step around it has ended stands beside it", async () => {
  const { steps } = await ran(async (_, context) => {
    let later: Promise<unknown> | undefined;
    await context.step("rules", {}, async () => {
      later = sleep(10).then(() => step({ name: "later" }, {}, () => 1));
    });
    return later;
  });
  expect(steps).toMatchObject([{ component: "rules" }, { name: "later", outputs: 1 }]);
  expect(steps[0]).not.toHaveProperty("steps");
});

it("values are recorded as they are at that time, and the handle sets usage and outputs", async () => {
  const messages = [{ role: "user", content: "hi" }];
  const { steps } = await ran((_, context) => {
    const answer = context.step("rules", { messages }, (handle) => {
      handle.usage = { calls: 1, input_tokens: 5 };
      handle.outputs = { text: "hello" };
      return ["whole", "response"];
    });
    messages.push({ role: "assistant", content: answer.join() });
    context.step("rules", {}, (handle) => {
      handle.outputs = "";
      return "whole";
    });
    return null;
  });
  expect(steps).toEqual([
    {
      component: "rules",
      inputs: { messages: [{ role: "user", content: "hi" }] },
      outputs: { text: "hello" },
      usage: { calls: 1, input_tokens: 5 },
      seconds,
    },
    { component: "rules", inputs: {}, outputs: "", seconds },
  ]);
});

it("a thrown error is that of its step and of the steps around it, and is rethrown", async () => {
  const failing = (context: RunContext) =>
    context.step({ name: "outer" }, {}, async () =>
      context.step("rules", {}, () => Promise.reject(new TypeError("no"))),
    );
  const { steps, result } = await ran(async (_, context) => {
    await failing(context).catch(() => {});
    return step({ name: "sync" }, {}, () => {
      throw new RangeError("far");
    });
  });
  const error = { type: "TypeError", message: "no" };
  expect(steps).toEqual([
    { name: "outer", inputs: {}, outputs: null, error, seconds, steps: [expect.objectContaining({ error })] },
    { name: "sync", inputs: {}, outputs: null, error: { type: "RangeError", message: "far" }, seconds },
  ]);
  expect(result).toMatchObject({ status: "program_error", error: { type: "RangeError", message: "far" } });
  expect(result.error.traceback).not.toContain("invokeProgram");
});

it("a parse failure is that of the step which it leaves first", async () => {
  const { steps, result } = await ran((_, context) =>
    step({ name: "outer" }, {}, async () =>
      context.step("rules", {}, async () => context.parseFailure("raw", "{...}", "no JSON")),
    ),
  );
  expect(steps).toEqual([
    {
      name: "outer",
      inputs: {},
      outputs: null,
      error: { type: "ParseFailure", message: "no JSON" },
      seconds,
      steps: [
        {
          component: "rules",
          inputs: {},
          outputs: null,
          error: { type: "parse_failure", message: "no JSON" },
          raw: "raw",
          expected: "{...}",
          seconds,
        },
      ],
    },
  ]);
  expect(result).toMatchObject({ status: "program_error", error: { type: "parse_failure", message: "no JSON" } });
});

it("a parse failure outside of any step is that of the example", async () => {
  const { result } = await ran((_, { parseFailure }) => parseFailure("raw", "{...}"), [0], { params: {} });
  expect(result.error).toMatchObject({ type: "parse_failure", message: "the answer could not be parsed" });
});

it("entries that the program appended stand beside the steps, and alone are the trajectory", async () => {
  const { results } = await ran(
    (data, { trace, step }) => {
      trace.push({ seen: data });
      if (data === 1) trace.push(new Map());
      return data === 2 ? null : step("rules", {}, () => null);
    },
    [0, 1, 2],
  );
  const [both, notJson, alone] = results.map(({ trajectory }) => trajectory);
  expect(both).toEqual({ steps: [expect.anything()], trace: [{ seen: 0 }] });
  expect(notJson).toEqual({ steps: [expect.anything()], trace: [{ seen: 1 }, { type: "Map", repr: "Map(0) {}" }] });
  expect(alone).toEqual([{ seen: 2 }]);
});

it("without traces nothing is recorded or read, and `fn` runs all the same", async () => {
  const unread = { toJSON: () => expect.unreachable() };
  const { result, logged } = await ran(
    (_, context) => context.step("ruels", { unread }, (handle) => step({ name: "x" }, {}, () => handle.usage)),
    [0],
    { params: {} },
  );
  expect(result).toMatchObject({ status: "ok", output: {} });
  expect(result).not.toHaveProperty("trajectory");
  expect(logged).toEqual([]);
});

it("outside of an example `step` runs its function", async () => {
  expect(step("rules", {}, () => 5)).toBe(5);
  await expect(step("rules", {}, async () => 6)).resolves.toBe(6);
});

it.each([[5], [{}], [null], [{ name: 5 }]])("a step of %o is a mistake, traced or not", async (label) => {
  for (const params of [traced, {}]) {
    const { result } = await ran((_, context) => context.step(label as never, {}, () => 1), [0], { params });
    expect(result.error.type).toBe("TypeError");
    expect(result.error.message).toContain('such as step("planner", inputs, fn)');
  }
});

it("a step of an unknown component is recorded, and reported once", async () => {
  const seedCandidate = { plan: "", planner: "", writer: "" };
  const run: Run = (_, context) => context.step("planer", {}, () => 1);
  const { results, logged } = await ran(run, [0, 1], { seedCandidate });
  expect(results[1].trajectory.steps).toMatchObject([{ component: "planer", outputs: 1 }]);
  expect(logged).toEqual([
    'a step is of component "planer": the candidate has no such component, it has plan, planner, writer',
  ]);
});

it("a step that has not ended with its example is unfinished, and reported once", async () => {
  const { results, logged } = await ran(
    (data, context) => {
      void context.step({ name: "outer" }, { data }, async () => {
        void step({ name: "inner" }, {}, () => sleep(10_000, null, { ref: false }));
        await sleep(10_000, null, { ref: false });
      });
      return data;
    },
    [0, 1],
  );
  const error = { type: "unfinished", message: "the step did not end before its example" };
  expect(results[1]).toMatchObject({ status: "ok" });
  expect(results[1].trajectory.steps).toEqual([
    { name: "outer", inputs: { data: 1 }, outputs: null, error, seconds, steps: [expect.objectContaining({ error })] },
  ]);
  expect(logged).toEqual([
    'the step "outer" had not ended when `run` returned; await it there',
    'the step "inner" had not ended when `run` returned; await it there',
  ]);
});

it("an example past its deadline has the steps until then", async () => {
  const { result, logged } = await ran(
    async (_, context) => {
      context.step("rules", {}, () => 1);
      return step({ name: "slow" }, {}, () => sleep(10_000, 1, { ref: false }));
    },
    [0],
    { limitS: 0.2 },
  );
  expect(result).toMatchObject({ status: "timeout" });
  expect(result.trajectory.steps).toMatchObject([{ outputs: 1 }, { name: "slow", error: { type: "unfinished" } }]);
  expect(logged).toEqual([]);
});

it("a step after its example has ended only runs, and is reported once", async () => {
  const later = gate<number>();
  const { result, logged } = await ran((_, context) => {
    setTimeout(() => {
      step({ name: "late" }, {}, () => 1);
      later.open(context.step({ name: "late" }, {}, () => 7));
    }, 20);
    return context.step("rules", {}, () => 1);
  });
  expect(await later.opened).toBe(7);
  expect(result.trajectory.steps).toHaveLength(1);
  expect(logged).toEqual(['the step "late" was started after its example had ended; it is not recorded']);
});

it("10,000 steps are recorded, one after another and within one another", async () => {
  const { results } = await ran(
    async (data, context) => {
      if (data === "flat") {
        for (let at = 0; at < 10_000; at++) await context.step("rules", { at }, async () => at);
        return null;
      }
      const descend = async (left: number): Promise<unknown> => {
        if (left > 0) await step("rules", { left }, () => descend(left - 1));
        return null;
      };
      return descend(1_000);
    },
    ["flat", "deep"],
  );
  const [flat, deep] = results;
  expect(flat.trajectory.steps).toHaveLength(10_000);
  expect(flat.trajectory.steps[9_999]).toMatchObject({ inputs: { at: 9_999 }, outputs: 9_999 });
  const counted = (steps: any[] = []): number => steps.reduce((sum, { steps }) => sum + 1 + counted(steps), 0);
  expect(deep.status).toBe("ok");
  expect(counted(deep.trajectory.steps)).toBe(1_000);
});

it("values that are not JSON are replaced by type and text, and the rest of them stays", async () => {
  const cyclic: any = { name: "loop" };
  cyclic.self = cyclic;
  const broken = Object.defineProperty({}, "x", {
    enumerable: true,
    get: () => {
      throw new Error("no");
    },
  });
  let deep: any = "bottom";
  for (let at = 0; at < 1000; at++) deep = [deep];
  const values = {
    cyclic,
    big: 2n ** 64n,
    nan: Number.NaN,
    set: new Set([1]),
    broken,
    when: new Date(0),
    half: "\ud800",
  };
  const { result, logged } = await ran((_, context) => {
    context.step("rules", { ...values, bytes: new Uint8Array(2), fn: Math.max }, () => new Error("given"));
    context.step("rules", { deep }, (handle) => {
      handle.usage = { calls: "many" } as never;
    });
    return null;
  });
  expect(result.status).toBe("ok");
  const [{ inputs, outputs }, { inputs: nested, usage }] = result.trajectory.steps;
  expect(inputs).toEqual({
    cyclic: { name: "loop", self: { type: "Object", repr: "<ref *1> { name: 'loop', self: [Circular *1] }" } },
    big: { type: "bigint", repr: "18446744073709551616n" },
    nan: { type: "number", repr: "NaN" },
    set: { type: "Set", repr: "Set(1) { 1 }" },
    broken: { type: "Object", repr: "{ x: [Getter] }" },
    when: "1970-01-01T00:00:00.000Z",
    half: "\\ud800",
    bytes: { type: "Uint8Array", repr: "Uint8Array(2) [ 0, 0 ]" },
    fn: { type: "function", repr: "[Function: max]" },
  });
  expect(outputs).toMatchObject({ type: "Error", repr: expect.stringContaining("Error: given") });
  expect(JSON.stringify(nested)).toContain('"type":"Array"');
  expect(usage).toBeUndefined();
  expect(logged).toEqual([expect.stringMatching(/^the usage of the step "rules" is left out: calls: /)]);
});

it("feedback on components is sent, and what is wrong with it is reported once", async () => {
  const score = () => ({
    score: 1,
    feedback: "good",
    component_feedback: {
      rules: { feedback: "better", score: 1 },
      tone: "warm",
      ruels: { feedback: "odd", score: 0.5 },
    },
  });
  const seedCandidate = { rules: "", tone: "" };
  const run: Run = (_, context) => context.step("rules", {}, () => 1);
  const { result, logged } = await ran(run, [0, 1], { seedCandidate, score });
  expect(result).toMatchObject({
    feedback: "good",
    component_feedback: { rules: "better", tone: "warm", ruels: "odd" },
  });
  expect(logged).toEqual(['component_feedback names "ruels": the candidate has no such component, it has rules, tone']);
});

it.each([
  ["text", "component_feedback must be an object"],
  [{ rules: 5 }, "component_feedback.rules must be a text or {feedback, score?}, not 5"],
  [{ rules: { feedback: "x", scor: 1 } }, "component_feedback.rules must be a text or {feedback, score?}"],
  [{ rules: { feedback: "x", score: Number.NaN } }, "component_feedback.rules.score must be a finite number, not NaN"],
])("component feedback such as %o is an invalid result", async (given, message) => {
  const { result } = await ran(() => 1, [0], { score: () => ({ score: 1, component_feedback: given as never }) });
  expect(result.error.type).toBe("invalid_result");
  expect(result.error.message).toContain(message);
});

it("a program that evaluates batches may return steps and feedback on components", async () => {
  const component_feedback = { rules: { feedback: "better" } };
  const trajectory = { steps: [{ component: "rules", inputs: {}, outputs: 1 }] };
  const server = await served(batchProgramOf({ evaluate: () => [{ score: 1, trajectory, component_feedback }] }));
  const results = await evaluate(server, [0], traced);
  expect(results).toMatchObject([{ component_feedback: { rules: "better" }, trajectory }]);
  expect((await evaluate(server, [0]))[0]).not.toHaveProperty("trajectory");
  expect((await call(server, "discover")).result.capabilities).toContain("steps");
});

it("a scorer that reads trajectories gets them, of its own program and of others", async () => {
  const seen: unknown[] = [];
  const score = (_: unknown, __: unknown, { trajectory }: any) => {
    seen.push(trajectory);
    return 1;
  };
  const run: Run = (data, { trace, step }) =>
    data === "steps" ? step("rules", {}, () => 1) : data === "trace" ? trace.push("asked") : null;
  const { server, results } = await ran(run, ["steps", "trace", "none"], { params: {}, score, readsTrajectory: true });
  expect(seen).toEqual([{ steps: [{ component: "rules", inputs: {}, outputs: 1, seconds }] }, ["asked"], undefined]);
  expect(results[0]).not.toHaveProperty("trajectory");
  expect((await call(server, "discover")).result.capabilities).toContain("score_trajectories");
  const rollout = { status: "rollout", score: null, output: 1, seconds: 0, trajectory: { steps: [] } };
  const { result } = await call(server, "score", { batch: [{ id: "a", data: 0 }], results: [rollout] });
  expect(result.results).toMatchObject([{ status: "ok", trajectory: { steps: [] } }]);
  const { trajectory: _trajectory, ...elsewhere } = { ...rollout, trajectory_ref: "other/1" };
  const refused = await call(server, "score", { batch: [{ id: "a", data: 0 }], results: [elsewhere] });
  expect(refused.result.results[0].error).toEqual({
    type: "invalid_result",
    message: "the scorer reads trajectories, but another server holds this one: send it inline",
  });
  expect(seen).toHaveLength(4);
  expect(seen[3]).toEqual({ steps: [] });
});

it("a scorer that does not read trajectories gets none, and is not asked to", async () => {
  const seen: unknown[] = [];
  const { server } = await ran(() => 1, [0], {
    score: (_: any, __: any, { trajectory }: any) => seen.push(trajectory),
  });
  expect(seen).toEqual([undefined]);
  const { capabilities } = (await call(server, "discover")).result;
  expect(capabilities).toContain("steps");
  expect(capabilities).not.toContain("score_trajectories");
});

it("in a runtime without Node's modules steps are recorded through the context, one after another", async () => {
  vi.resetModules();
  const builtin = vi.spyOn(process, "getBuiltinModule").mockReturnValue(undefined as never);
  onTestFinished(() => {
    builtin.mockRestore();
    vi.resetModules(); // else the tests of the next file get these modules, which found none of Node's
  });
  const web = await import("../src/web.js");
  const run = (_: unknown, __: unknown, context: RunContext) =>
    context.step({ name: "outer" }, {}, () =>
      context.step("rules", { map: new Map() }, () => web.step({ name: "unseen" }, {}, () => 1)),
    );
  const handle = web.handler(programOf({ run }), { token: "secret" });
  const { output, trajectory } = (await answerOf(handle, "evaluate", { ...ONE, ...traced })).result.results[0];
  expect(output).toBe(1);
  expect(trajectory.steps).toMatchObject([{ name: "outer" }, { component: "rules" }]);
});

it("messages of LangChain are chat messages, which records show as context", async () => {
  const message = (type: string, kwargs: object, lc = 1) => ({
    toJSON: () => ({ lc, type: "constructor", id: ["langchain_core", "messages", type], kwargs }),
  });
  const asked = message("HumanMessage", { content: "Rome?", additional_kwargs: {} });
  const calls = [{ name: "weather", args: { city: "Rome" }, id: "call_1", type: "tool_call" }];
  const called = message("AIMessageChunk", { content: "", tool_calls: calls, usage_metadata: {} });
  const others = [message("RemoveMessage", { id: "1" }), message("AIMessage", {}, 2), message("constructor", {})];
  const { steps } = await ran((_, context) => {
    context.step(
      "rules",
      { messages: [asked, message("SystemMessage", { content: [{ text: "Be short." }] })] },
      () => called,
    );
    context.step("rules", {}, () => [
      message("ToolMessage", { content: "sunny" }),
      message("AIMessage", {}),
      ...others,
    ]);
    return 0;
  });
  expect(steps[0].inputs.messages).toEqual([
    { role: "user", content: "Rome?" },
    { role: "system", content: [{ text: "Be short." }] },
  ]);
  const tool_calls = [{ name: "weather", arguments: { city: "Rome" } }];
  expect(steps[0].outputs).toEqual({ role: "assistant", content: "", tool_calls });
  expect(steps[1].outputs.slice(0, 2)).toEqual([
    { role: "tool", content: "sunny" },
    { role: "assistant", content: null },
  ]);
  expect(steps[1].outputs.slice(2)).toEqual(others.map((each) => each.toJSON()));
});
