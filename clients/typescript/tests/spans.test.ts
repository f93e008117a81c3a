// Spans of an example become steps of its trajectory, for each convention and each set-up of OpenTelemetry.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { context, type Span, SpanStatusCode, type Tracer, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { BasicTracerProvider, type SpanProcessor } from "@opentelemetry/sdk-trace-base";
import { afterEach, beforeEach, expect, it, onTestFinished, vi } from "vitest";
import type { RunContext } from "../src/program/program.js";
import { step } from "../src/steps/steps.js";
import { call, evaluate, gate, programOf, ranProgram, served } from "./support.js";

const REPLAYED: any[] = JSON.parse(
  readFileSync(new URL("../../../tests/rpc_server/program/data/spans.json", import.meta.url), "utf8"),
);
const seedCandidate = { planner: "Plan the trip in days.", solver: "Solve it.", checker: "Plan", short: "Plan the" };
const CHAT = { attributes: { "gen_ai.operation.name": "chat", "gen_ai.request.model": "m" } };
const traced = { capture_traces: true };
let tracer: Tracer; // as a module has it: made before anything is set up

const processorOf = (parts: Partial<SpanProcessor>): SpanProcessor => ({
  onStart: () => {},
  onEnd: () => {},
  forceFlush: async () => {},
  shutdown: async () => {},
  ...parts,
});

/** Set up OpenTelemetry's SDK, and return the names of the spans that its exporter gets. */
function setUp(...further: SpanProcessor[]): string[] {
  const exported: string[] = [];
  const exporter = processorOf({ onEnd: ({ name }) => exported.push(name) });
  trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [...further, exporter] }));
  context.setGlobalContextManager(new AsyncLocalStorageContextManager());
  return exported;
}

type Run = (data: any, context: RunContext) => unknown;

/** The results of examples of a program whose components are those of `seedCandidate`, and what was logged. */
function ran(run: Run, data?: unknown[], params?: object) {
  return ranProgram(programOf({ seedCandidate, run: (example, _, context) => run(example, context) }), data, params);
}

function inSpan<Result>(name: string, fn: (span: Span) => Result, options: object = CHAT): Result {
  return tracer.startActiveSpan(name, options, (span) => {
    const result = fn(span);
    if (result instanceof Promise) return result.finally(() => span.end()) as Result;
    span.end();
    return result;
  });
}

/** Record the spans that an example describes, in the order in which they start. */
function replay({ spans }: any): null {
  const started: Span[] = [];
  for (const { name, parent, attributes, events = [], error } of spans) {
    const around = parent === undefined ? context.active() : trace.setSpan(context.active(), started[parent] as Span);
    const span = trace.getTracer("replayed").startSpan(name, { attributes }, around);
    for (const [event, details] of events) span.addEvent(event, details);
    if (error !== undefined) span.setStatus({ code: SpanStatusCode.ERROR, message: error });
    started.push(span);
  }
  for (const span of started.reverse()) span.end();
  return null;
}

const withoutSeconds = (steps: any[]): any[] =>
  steps.map(({ seconds, ...rest }) => {
    expect(seconds).toBeGreaterThanOrEqual(0);
    return rest.steps === undefined ? rest : { ...rest, steps: withoutSeconds(rest.steps) };
  });

/** The component or name of each step, with those within it. */
const shape = (steps: any[]): any[] =>
  steps.map((each) => {
    const name = each.component ?? each.name;
    return each.steps === undefined ? name : [name, shape(each.steps)];
  });

beforeEach(() => {
  tracer = trace.getTracer("tests");
});

afterEach(() => {
  trace.disable();
  context.disable();
});

for (const by of ["the SDK", "no set-up of the program's own"]) {
  it.each(REPLAYED)(`spans of $name, by ${by}, are the steps that Python makes of them`, async (replayed) => {
    if (by === "the SDK") setUp();
    const { steps } = await ran(replay, [replayed]);
    expect(withoutSeconds(steps)).toEqual(replayed.steps);
    expect(({} as any).polluted).toBeUndefined();
  });
}

it.each(["own", "none"])("steps of spans and of the program stand within each other (set-up: %s)", async (set) => {
  if (set === "own") setUp();
  const system = JSON.stringify([{ type: "text", content: "Plan the trip in days." }]);
  const answer = (text: string) => JSON.stringify([{ role: "assistant", parts: [{ type: "text", content: text }] }]);
  const { steps } = await ran(async () => {
    await step("planner", { question: "Rome?" }, async (handle) => {
      await inSpan(
        "POST",
        async () => {
          await inSpan("agent", async () => {
            await inSpan("task", async () => step({ name: "lookup" }, {}, () => inSpan("inner", () => 1)), {});
          });
          const attributes = { ...CHAT.attributes, "gen_ai.system_instructions": system };
          inSpan("chat m", () => inSpan("of the model", () => 1), { attributes });
        },
        {},
      );
      handle.outputs = "own";
    });
    await step("solver", {}, async () => {
      for (const text of ["first", "last"]) {
        const attributes = {
          ...CHAT.attributes,
          "gen_ai.agent.name": "solver",
          "gen_ai.output.messages": answer(text),
          "gen_ai.usage.input_tokens": 7,
        };
        inSpan("chat m", () => 1, { attributes });
      }
    });
  });
  expect(shape(steps)).toEqual([["planner", [["agent", [["lookup", ["inner"]]]], "of the model"]], "solver"]);
  expect(steps[0]).toMatchObject({ inputs: { question: "Rome?" }, outputs: "own" });
  expect(steps[1]).toMatchObject({
    inputs: { model: "m" },
    outputs: "last",
    usage: { calls: 2, models: { m: { calls: 2 } } }, // their output is unknown, not 0
  });
});

it.each(["own", "none"])("spans of examples at the same time are not mixed (set-up: %s)", async (set) => {
  if (set === "own") setUp();
  const all = gate();
  let started = 0;
  const { results } = await ran(
    (name) =>
      inSpan(name, async () => {
        started += 1;
        if (started === 5) all.open();
        await all.opened;
        await Promise.resolve();
        inSpan(`within ${name}`, () => 1);
      }),
    ["a", "b", "c", "d", "e"],
  );
  expect(results.map(({ trajectory }) => shape(trajectory.steps))).toEqual(
    ["a", "b", "c", "d", "e"].map((name) => [[name, [`within ${name}`]]]),
  );
});

it("a span without asynchronous context belongs to the only example that runs; among several it is reported once", async () => {
  setUp();
  const stray = { now: () => {} };
  const started = gate();
  const outside = (async () => {
    await started.opened;
    stray.now();
  })();
  const alone = await ran(async () => {
    stray.now = () => inSpan("stray", () => 1);
    started.open();
    await outside;
  });
  expect(shape(alone.steps)).toEqual(["stray"]);

  const both = gate();
  const again = (async () => {
    await both.opened;
    inSpan("stray", () => 1);
    inSpan("stray", () => 1);
    inSpan("GET", () => 1, {});
  })();
  let open = 0;
  const several = await ran(async () => {
    open += 1;
    if (open === 2) both.open();
    await again;
  }, [0, 1]);
  expect(several.results.map(({ trajectory }) => trajectory)).toEqual([undefined, undefined]);
  expect(several.logged).toEqual([
    expect.stringMatching(
      /^the span "stray" is not recorded: it has no asynchronous context, and several examples run/,
    ),
  ]);
});

it("an example that has timed out and does not stop takes no span of the next one", async () => {
  setUp();
  const stray = { now: () => {} };
  const started = gate();
  const outside = started.opened.then(() => stray.now());
  const run = async (data: string) => {
    if (data === "hangs") await new Promise(() => {});
    stray.now = () => inSpan("stray", () => 1);
    started.open();
    await outside;
  };
  const server = await served(programOf({ seedCandidate, run }), { log: () => {}, exampleTimeoutS: 0.3 });
  const [hung] = await evaluate(server, ["hangs"], { candidate: seedCandidate, ...traced });
  expect(hung.status).toBe("timeout");
  const [next] = await evaluate(server, ["next"], { candidate: seedCandidate, ...traced });
  expect(shape(next.trajectory.steps)).toEqual(["stray"]);
});

it.each(["own", "none"])(
  "a span that never ends, or ends or starts too late, is reported once (set-up: %s)",
  async (set) => {
    if (set === "own") setUp();
    const over = gate();
    const { logged, results, server } = await ran(
      (data, { step: run }) => {
        const left = tracer.startSpan("left", CHAT);
        tracer.startSpan("no step", {});
        over.opened.then(() => {
          left.end();
          inSpan("late", () => 1);
          inSpan("GET", () => 1, {});
        });
        run("planner", { data }, () => inSpan("chat m", () => 1));
      },
      [0, 1],
    );
    over.open();
    await over.opened;
    await call(server, "discover");
    for (const { trajectory } of results) {
      expect(trajectory.steps).toMatchObject([
        { name: "left", error: { type: "unfinished", message: "the step did not end before its example" } },
        { component: "planner" },
      ]);
      expect(trajectory.steps).toHaveLength(2);
      expect(trajectory.steps[0]).not.toHaveProperty("seconds");
    }
    expect(logged.filter((line) => !line.includes("of no component"))).toEqual([
      'the step of the span "left" had not ended when `run` returned; await it there',
      'the step of the span "late" was started after its example had ended; it is not recorded',
    ]);
  },
);

it("what is wrong with components of spans is reported once", async () => {
  setUp();
  const { logged } = await ran(() => {
    inSpan("chat m", () => 1);
    inSpan("chat m", () => 1);
    inSpan("odd", () => 1, { attributes: { ...CHAT.attributes, "evolverpc.component": "planer" } });
    inSpan("agent", () => inSpan("of it", () => 1), {
      attributes: { "gen_ai.operation.name": "invoke_agent", "evolverpc.component": "solver" },
    });
  }, [0, 1]);
  expect(logged).toEqual([
    expect.stringMatching(/^the span "chat m" of a model call is of no component; it has no messages: make the instr/),
    expect.stringMatching(/^a step is of component "planer": /),
  ]);
});

it.each(["own", "none"])(
  "a call that two instrumentations record within each other is one step (set-up: %s)",
  async (set) => {
    if (set === "own") setUp();
    const attributes = {
      ...CHAT.attributes,
      "gen_ai.system_instructions": JSON.stringify([{ type: "text", content: "Solve it." }]),
    };
    const call = (by: string, fn = () => {}) =>
      trace.getTracer(by).startActiveSpan("chat m", { attributes }, (span) => {
        fn();
        span.end();
      });
    const { steps, logged } = await ran(() => call("langchain", () => call("openai")));
    expect([shape(steps), logged]).toEqual([["solver"], []]);
  },
);

it("a tracer provider that the program sets late gets the spans from then on, as steps from the next example on", async () => {
  let exported: string[] = [];
  const { server, logged } = await ran((data) => {
    inSpan("before", () => 1);
    if (data === 0) exported = setUp();
    inSpan("after", () => 1);
  });
  expect(exported).toEqual(["after"]);
  const [result] = await evaluate(server, [1], { candidate: seedCandidate, ...traced });
  expect(shape(result.trajectory.steps)).toEqual(["before", "after"]);
  expect(exported).toEqual(["after", "before", "after"]);
  expect(logged.filter((line) => !line.includes("of no component"))).toEqual([
    expect.stringMatching(
      /^OpenTelemetry was loaded or set up while an example ran: spans are steps of the next examples/,
    ),
  ]);
});

it("a tracer provider that is not of the SDK is reported, unless it is the one that does nothing", async () => {
  class Vendors {
    getTracer = () => tracer;
  }
  trace.setGlobalTracerProvider(new Vendors());
  const { logged } = await ran(() => 1, [0, 1]);
  expect(logged).toEqual([
    "spans do not become steps: the tracer provider, a Vendors, is not one of OpenTelemetry's SDK",
  ]);
  trace.disable();
  class NoopTracerProvider extends Vendors {}
  trace.setGlobalTracerProvider(new NoopTracerProvider());
  expect((await ran(() => 1)).logged).toEqual([]);
});

it.each(["own", "none"])(
  "no span is recorded for an example of which no trajectory is wanted (set-up: %s)",
  async (set) => {
    const exported = set === "own" ? setUp() : [];
    await ran(() => 1); // sets up the minimal provider, if there is no other
    let isRecording: boolean | undefined;
    const { result, logged } = await ran(
      () => inSpan("chat m", (span) => (isRecording = span.isRecording())) && 1,
      [0],
      {},
    );
    expect(result).not.toHaveProperty("trajectory");
    expect(logged).toEqual([]); // a step would be reported to be of no component
    expect(exported).toEqual(set === "own" ? ["chat m"] : []);
    expect(isRecording).toBe(set === "own");
  },
);

it("spans that start in `score` are no steps", async () => {
  setUp();
  const score = () => inSpan("judge", () => 1);
  const { steps } = await ranProgram(programOf({ seedCandidate, run: () => inSpan("chat m", () => 1), score }));
  expect(shape(steps)).toEqual(["chat m"]);
});

it("a span of the minimal provider has what the API promises", async () => {
  const { steps } = await ran(async () => {
    const span = tracer.startSpan("draft");
    span.setAttribute("gen_ai.operation.name", "chat").setAttributes({ "gen_ai.agent.name": "planner" });
    span.updateName("final").addLink({ context: span.spanContext() }).addLinks([]);
    span.addEvent("gen_ai.user.message", { content: "Rome?" }).addEvent("timed", Date.now());
    span.recordException(new TypeError("broken"));
    span.setStatus({ code: SpanStatusCode.ERROR });
    const bound = context.bind(trace.setSpan(context.active(), span), () => inSpan("within", () => 1));
    await Promise.resolve().then(bound);
    tracer.startActiveSpan("beside", { ...CHAT, root: true }, trace.setSpan(context.active(), span), (each) =>
      each.end(),
    );
    const left = trace.deleteSpan(trace.setSpan(context.active(), span));
    expect(trace.getSpan(left)).toBeUndefined();
    expect(trace.isSpanContextValid(span.spanContext())).toBe(true);
    span.end();
    span.setAttribute("gen_ai.request.model", "late").end();
  });
  expect(shape(steps)).toEqual([["planner", ["within"]], "beside"]);
  expect(steps[0]).toMatchObject({
    inputs: { messages: [{ role: "user", content: "Rome?" }] },
    error: { type: "TypeError", message: "broken" },
    usage: { calls: 1 },
  });
  expect(steps[0].inputs).not.toHaveProperty("model");
});

it("the step of a span of the minimal provider has its seconds", async () => {
  const began = performance.now();
  const { steps } = await ran(() => inSpan("chat m", () => sleep(30)));
  const most = (performance.now() - began) / 1000;
  expect(steps[0].seconds).toBeGreaterThan(0.02);
  expect(steps[0].seconds).toBeLessThanOrEqual(most);
});

it("no random number is drawn while the modules load, which some platforms do not allow", async () => {
  vi.resetModules();
  const refuse = (): never => {
    throw new Error("no random numbers in the global scope");
  };
  const spies = [vi.spyOn(crypto, "randomUUID"), vi.spyOn(crypto, "getRandomValues")];
  for (const spy of spies) spy.mockImplementation(refuse);
  onTestFinished(() => spies.forEach((spy) => void spy.mockRestore()));
  await expect(Promise.all([import("../src/web.js"), import("../src/steps/ai-sdk.js")])).resolves.toHaveLength(2);
});
