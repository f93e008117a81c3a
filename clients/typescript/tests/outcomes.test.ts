import { describe, expect, it } from "vitest";
import { batchProgramOf, call, evaluate, gate, programOf, served } from "./support.js";

function answered(statusCode: number): Error {
  return Object.assign(new Error(`answered ${statusCode}`), { statusCode });
}

/** As the AI SDK throws it after its retries. */
function retried(errors: Error[]): Error {
  return Object.assign(new Error("gave up"), { errors, lastError: errors.at(-1) });
}

function endless(): Error {
  let error = answered(503);
  for (let depth = 0; depth < 100_000; depth++) error = new Error("gave up", { cause: error });
  return error;
}

function unreadable(): Error {
  const properties = [
    "retryable",
    "statusCode",
    "status",
    "response",
    "cause",
    "code",
    "lastError",
    "errors",
    "$metadata",
  ];
  const get = () => {
    throw new Error("not to be read");
  };
  return Object.defineProperties(new Error("m"), Object.fromEntries(properties.map((name) => [name, { get }])));
}

/** The one result of a program whose `run` is this. */
async function resultOf(run: () => unknown, more: object = {}): Promise<any> {
  const [result, neighbour] = await evaluate(
    await served(programOf({ run: (data) => (data === "odd" ? run() : 1) })),
    ["odd", "even"],
    more,
  );
  expect(neighbour.status).toBe("ok");
  return result;
}

describe("a score", () => {
  it.each([
    ["a number", 0.5, { score: 0.5 }],
    ["zero", 0, { score: 0 }],
    ["a verdict", true, { score: 1 }],
    ["a number with feedback", [0.25, "so so"], { score: 0.25, feedback: "so so" }],
    ["among nulls", { score: 1, feedback: null, objective_scores: null, component_feedback: null }, { score: 1 }],
    [
      "an object",
      { score: 1, feedback: "f", objective_scores: { a: 2 } },
      { score: 1, feedback: "f", objective_scores: { a: 2 } },
    ],
  ])("may be %s", async (_, score, expected) => {
    const [result] = await evaluate(await served(programOf({ score: () => score as never })), [1]);
    expect(result).toMatchObject({ status: "ok", output: 1, ...expected });
  });

  it.each([
    ["NaN", Number.NaN],
    ["infinite", Number.POSITIVE_INFINITY],
    ["a string", "0.5"],
    ["missing", undefined],
    ["null", null],
    ["missing from its object", { feedback: "f" }],
    ["an object with a key that means nothing", { score: 1, reason: "f" }],
    ["with feedback that is no text", [1, 2]],
    ["with an objective that is NaN", { score: 1, objective_scores: { a: Number.NaN } }],
  ])("that is %s is the program's error", async (_, score) => {
    const program = programOf({ score: (data) => (data === "odd" ? (score as never) : 1) });
    const [result, neighbour] = await evaluate(await served(program), ["odd", "even"]);
    const error = { type: "invalid_result" };
    expect(result).toMatchObject({ status: "program_error", score: null, output: "odd", error });
    expect(neighbour.status).toBe("ok");
  });
});

describe("an output", () => {
  it("nests as deep as clients accept, and no deeper", async () => {
    const nested = (levels: number): unknown => JSON.parse("[".repeat(levels) + "]".repeat(levels));
    expect(await resultOf(() => nested(198))).toMatchObject({ status: "ok", output: nested(198) });
    expect(await resultOf(() => nested(200))).toMatchObject({
      status: "program_error",
      error: { type: "invalid_result" },
    });
  });

  const cyclic: Record<string, unknown> = {};
  cyclic.self = cyclic;
  it.each([
    ["cyclic", cyclic],
    ["a function inside", { a: [() => 1] }],
    ["NaN inside", { a: Number.NaN }],
    ["a Map", new Map()],
    ["a symbol", Symbol("s")],
  ])("that is %s is the program's error", async (_, output) => {
    expect(await resultOf(() => output)).toMatchObject({
      status: "program_error",
      score: null,
      output: null,
      error: { type: "invalid_result", message: expect.stringContaining("output") },
    });
  });
  it.each([
    ["undefined", undefined, null],
    ["a date", new Date(0), "1970-01-01T00:00:00.000Z"],
    ["undefined inside", { a: undefined, b: [undefined] }, { b: [null] }],
    [
      "a key that means something to JavaScript",
      JSON.parse('{"__proto__": {"a": 1}}'),
      JSON.parse('{"__proto__": {"a": 1}}'),
    ],
  ])("that is %s has a JSON form", async (_, output, expected) => {
    expect((await resultOf(() => output)).output).toStrictEqual(expected);
  });
  it("is copied when it is returned, so that later changes have no effect", async () => {
    const shared = { turn: 0 };
    const run = (turn: number) => Object.assign(shared, { turn });
    const server = await served(programOf({ run }), { concurrency: 1 });
    expect((await evaluate(server, [1, 2, 3])).map(({ output }) => output.turn)).toEqual([1, 2, 3]);
  });
});

describe("an error", () => {
  it("that is thrown is a program error with class, message and stack", async () => {
    class RulesError extends Error {}
    function inRules(): never {
      throw new RulesError("no such label");
    }
    const result = await resultOf(inRules);
    expect(result).toMatchObject({
      status: "program_error",
      score: null,
      error: { type: "RulesError", message: "no such label" },
    });
    expect(result.error.traceback).toContain("inRules");
    expect(result.error.traceback).not.toContain("invokeProgram");
  });
  it("need not be an Error", async () => {
    expect(await resultOf(() => Promise.reject("just text"))).toMatchObject({
      status: "program_error",
      error: { type: "string", message: "just text" },
    });
  });
  /** The values, as if a package had made the errors among them. */
  function ofPackage<Row extends [string, unknown]>(rows: Row[]): Row[] {
    const stack = "Error: m\n    at send (/app/node_modules/client/index.js:1:1)";
    const mark = (value: unknown): void => {
      if (!(value instanceof Error)) return;
      value.stack = stack;
      for (const each of Object.getOwnPropertyNames(value)) mark((value as any)[each]);
      if (value instanceof AggregateError) value.errors.forEach(mark);
    };
    for (const [, value] of rows) mark(value);
    return rows;
  }
  it.each(
    ofPackage([
      ["has `retryable` true", Object.assign(new Error("busy"), { retryable: true })],
      ["has the status of an outage", Object.assign(new Error("bad gateway"), { status: 502 })],
      [
        "is the network's, behind fetch",
        new TypeError("fetch failed", { cause: Object.assign(new Error(), { code: "ECONNREFUSED" }) }),
      ],
      ["is the network's, from a socket", Object.assign(new Error(), { code: "ECONNRESET" })],
      ["is a name server's that is away", Object.assign(new Error("getaddrinfo"), { code: "EAI_AGAIN" })],
      ["is a certificate's that is over", Object.assign(new Error("expired"), { code: "CERT_HAS_EXPIRED" })],
      [
        "is undici's own",
        new TypeError("fetch failed", { cause: Object.assign(new Error(), { code: "UND_ERR_SOCKET" }) }),
      ],
      ["has the status of an outage behind it", new Error("gave up", { cause: answered(503) })],
      ["has a response for its cause", new Error("gave up", { cause: new Response("", { status: 429 }) })],
      ["has a response with the status", Object.assign(new Error("no"), { response: { status: 503 } })],
      ["carries the status of an outage", Object.assign(new Error("no"), { failure: answered(529) })],
      ["has an outage for its last error", retried([answered(400), answered(503)])],
      ["is of several, one an outage", new AggregateError([answered(401), answered(503)])],
      ["has a status in its code beside a response", Object.assign(new Error("no"), { code: "503", response: {} })],
      ["is throttled by AWS", Object.assign(answered(400), { $retryable: { throttling: true } })],
      ["is a name that is not found", Object.assign(new Error("getaddrinfo"), { code: "ENOTFOUND" })],
      ["is PostgreSQL's, which shuts down", Object.assign(new Error("bye"), { severity: "FATAL", code: "57P01" })],
      ["is MCP's for a limit of time", Object.assign(new Error("Request timed out"), { code: -32001 })],
      ["is gRPC's for an outage", Object.assign(new Error("UNAVAILABLE"), { metadata: {}, code: 14 })],
      ["has a label of MongoDB", Object.assign(new Error("no"), { errorLabels: ["RetryableWriteError"] })],
      ["is `fetch`'s without a cause", new TypeError("fetch failed")],
    ]),
  )("that %s is an infrastructure failure", async (_, error) => {
    expect(await resultOf(() => Promise.reject(error))).toMatchObject({ status: "infra_error", score: null });
  });
  it.each([
    ["has `retryable` false", Object.assign(answered(429), { retryable: false })],
    ["has the status of a bad request", Object.assign(new Error("bad"), { status: 400 })],
    ["is a plain TypeError", new TypeError("x is undefined")],
    ["is a bad address for `fetch`", new TypeError("fetch failed", { cause: new Error("unknown scheme") })],
    ["is a conflict", answered(409)],
    ["has a code of its own", Object.assign(new Error("mine"), { code: 503 })],
    ["is refused, with an outage behind it", Object.assign(answered(400), { cause: answered(503) })],
    ["is refused at last", retried([answered(503), answered(400)])],
    ["is undici's for a refusal", Object.assign(answered(400), { code: "UND_ERR_RESPONSE" })],
    ["is a limit of its own", new DOMException("too late", "TimeoutError")],
    ["has an endless chain behind it", endless()],
    ["cannot be read", unreadable()],
    ["has a status that the program gave it", answered(503)],
    ["has a code of gRPC that the program gave it", Object.assign(new Error("row"), { metadata: {}, code: 8 })],
  ])("that %s is the program's", async (_, error) => {
    expect((await resultOf(() => Promise.reject(error))).status).toBe("program_error");
  });
  it("names the decisive status and host, and no more of the URL", async () => {
    const refused = Object.assign(answered(401), { url: "https://u:secret@models.example:8443/v1?key=secret" });
    const result = await resultOf(() => Promise.reject(new Error("the agent failed", { cause: refused })));
    expect(result.error.message).toBe("the agent failed [HTTP 401 from models.example:8443, Error]");
  });
});

describe("a deadline", () => {
  it("ends an example that never settles, aborts its signal, and does not affect its neighbours", async () => {
    const reason = gate<string>();
    const run = (data: unknown, _: unknown, { signal }: { signal: AbortSignal }) => {
      if (data !== "hang") return data;
      signal.addEventListener("abort", () => reason.open(signal.reason.name));
      return new Promise(() => {});
    };
    const server = await served(programOf({ run }), { exampleTimeoutS: 0.2, concurrency: 1 });
    expect(await evaluate(server, ["a", "hang", "b"])).toMatchObject([
      { status: "ok" },
      { status: "timeout", score: null, error: { type: "timeout" } },
      { status: "ok" },
    ]);
    expect(await reason.opened).toBe("TimeoutError");
  });
});

describe("a program with an `evaluate` of its own", () => {
  it("gets a minibatch as one call, and advertises that", async () => {
    const sizes: number[] = [];
    const server = await served(
      batchProgramOf({
        evaluate: async (_, batch) => {
          sizes.push(batch.length);
          await new Promise((resolve) => setTimeout(resolve, 100));
          return batch.map(({ data }) => data);
        },
      }),
    );
    const began = performance.now();
    const results = await evaluate(server, [
      0.5,
      [1, "f"],
      { score: 2, output: "o", metric_calls: 3, seconds: 0 },
      { status: "infra_error", error: { type: "E", message: "m" } },
    ]);
    const elapsed = (performance.now() - began) / 1000;
    expect(sizes).toEqual([4]);
    expect(results.reduce((sum, { seconds }) => sum + seconds, 0)).toBeLessThanOrEqual(elapsed); // a part for each
    expect(results).toMatchObject([
      { status: "ok", score: 0.5, output: null },
      { status: "ok", score: 1, feedback: "f" },
      { status: "ok", score: 2, output: "o", metric_calls: 3, seconds: 0 },
      { status: "infra_error", score: null, error: { type: "E" } },
    ]);
    expect((await call(server, "discover")).result.limits.whole_batches).toBe(true);
  });
  it("can choose single examples", async () => {
    const sizes: number[] = [];
    const evaluateBatch = (_: unknown, batch: unknown[]) => {
      sizes.push(batch.length);
      return batch.map(() => 1);
    };
    await evaluate(await served(batchProgramOf({ evaluate: evaluateBatch, wholeBatches: false })), [1, 2, 3]);
    expect(sizes).toEqual([1, 1, 1]);
  });
  it.each([
    ["too short", () => [1]],
    ["too long", () => [1, 1, 1]],
    ["not a list", () => 1 as never],
  ])("fails for every example where its list is %s", async (_, returns) => {
    const results = await evaluate(await served(batchProgramOf({ evaluate: returns })), [1, 2]);
    expect(results).toHaveLength(2);
    for (const result of results)
      expect(result).toMatchObject({ status: "program_error", error: { type: "invalid_result" } });
  });
  it.each([
    ["a score that is NaN", { score: Number.NaN }],
    ["no score", { output: 1 }],
    ["an unknown status", { status: "splendid" }],
    ["usage that makes no sense", { score: 1, usage: { calls: -1 } }],
  ])("fails for the one example with %s", async (_, odd) => {
    const results = await evaluate(await served(batchProgramOf({ evaluate: () => [odd as never, 1] })), [1, 2]);
    expect(results).toMatchObject([{ status: "program_error", error: { type: "invalid_result" } }, { status: "ok" }]);
  });
  it("has the deadline of one example times their number", async () => {
    const evaluateBatch = async (_: unknown, batch: unknown[]) => {
      await new Promise((resolve) => setTimeout(resolve, 500));
      return batch.map(() => 1);
    };
    const server = await served(batchProgramOf({ evaluate: evaluateBatch }), { exampleTimeoutS: 0.3 });
    expect(await evaluate(server, [1])).toMatchObject([{ status: "timeout" }]);
    expect(await evaluate(server, [1, 2, 3])).toMatchObject([{ status: "ok" }, { status: "ok" }, { status: "ok" }]);
  });
});

describe("trajectories and usage", () => {
  it("a traced program returns its steps, another one nothing", async () => {
    const run = (data: any, _: unknown, { trace, usage }: any) => {
      if (data.traced) trace.push({ step: "looked" });
      usage.input_tokens = 7;
      if (data.fails) throw new Error("no");
      return "out";
    };
    const server = await served(programOf({ run, score: () => [1, "fine"] }));
    const data = [{ traced: true }, {}, { traced: true, fails: true }];
    const results = await evaluate(server, data, { capture_traces: true });
    expect(results.map(({ trajectory }) => trajectory)).toEqual([
      [{ step: "looked" }],
      undefined,
      [{ step: "looked" }],
    ]);
    for (const result of results) expect(result.usage).toEqual({ input_tokens: 7 });
    for (const result of await evaluate(server, data)) expect(result).not.toHaveProperty("trajectory");
  });
  it("invalid usage is omitted", async () => {
    const run = (_: unknown, __: unknown, { usage }: any) => {
      usage.cost_usd = Number.NaN;
    };
    expect((await evaluate(await served(programOf({ run })), [1]))[0]).not.toHaveProperty("usage");
  });
});

describe("scoring the outputs of another server", () => {
  const rollout = { status: "rollout", score: null, output: "out", seconds: 1 };
  const score = async (server: any, results: object[]) => {
    const batch = results.map((_, at) => ({ id: String(at), data: at }));
    return (await call(server, "score", { batch, results })).result.results;
  };

  it("keeps to the limit of running examples, each under its deadline", async () => {
    let running = 0;
    let most = 0;
    const judge = async (data: unknown) => {
      most = Math.max(most, ++running);
      await new Promise((resolve) => data !== 3 && setTimeout(resolve, 5));
      running--;
      return [1, "fine"] as const;
    };
    const server = await served(programOf({ score: judge }), { concurrency: 2, exampleTimeoutS: 0.5 });
    const results = await score(server, Array(5).fill(rollout));
    expect(results.map(({ status }: any) => status)).toEqual(["ok", "ok", "ok", "timeout", "ok"]);
    expect(results[0]).toEqual({
      status: "ok",
      score: 1,
      feedback: "fine",
      output: "out",
      seconds: expect.any(Number),
    });
    expect(results[0].seconds).toBeLessThan(1);
    expect(most).toBe(2);
  });
  it("replaces an earlier score, and leaves failures unchanged", async () => {
    const failed = { status: "program_error", score: null, seconds: 0, error: { type: "E", message: "m" } };
    const old = { feedback: "old", component_feedback: { rules: "old" } };
    const scored = { status: "ok", score: 0, output: "out", seconds: 1, ...old };
    const results = await score(await served(programOf()), [scored, failed]);
    expect(results).toEqual([{ status: "ok", score: 1, output: "out", seconds: expect.any(Number) }, failed]);
  });
});

describe("calls that belong to no example", () => {
  it("a program that throws fails the call with its stage", async () => {
    const server = await served(
      programOf({
        finalize: () => {
          throw new Error("disk full");
        },
      }),
    );
    const run = { id: "r", metric_calls: 1, candidates: 1, seed_score: 0 };
    const answer = await call(server, "finalize", { best_candidate: { rules: "" }, best_score: 1, run });
    expect(answer.error).toMatchObject({
      code: -32025,
      message: "Error: disk full",
      data: { stage: "finalize", retryable: false },
    });
  });
  it("a program that an outage stopped fails a call that may be repeated", async () => {
    const busy = () => Promise.reject(Object.assign(new Error("busy"), { retryable: true }));
    const params = { candidate: { rules: "" }, reflective_dataset: {}, components_to_update: ["rules"] };
    const { error } = await call(await served(programOf({ proposeNewTexts: busy })), "propose_new_texts", params);
    expect(error).toMatchObject({ code: -32025, data: { stage: "propose_new_texts", retryable: true } });
  });
  it("an answer that breaks the contract is a program failure", async () => {
    const server = await served(programOf({ makeReflectiveDataset: () => ({ rules: "no list" }) as never }));
    const params = {
      candidate: { rules: "" },
      eval_batch: { batch: [], results: [] },
      components_to_update: ["rules"],
    };
    expect((await call(server, "make_reflective_dataset", params)).error).toMatchObject({
      code: -32025,
      data: { stage: "make_reflective_dataset" },
    });
  });
  it.each<[unknown, string]>([
    [{ a: "x", b: "y" }, "returned a text for `a`, but the third argument holds `b` alone"],
    ["y", 'returned "y"'],
    [undefined, "returned undefined"],
  ])("new texts such as %o are a program failure", async (returned, message) => {
    const server = await served(
      programOf({ seedCandidate: { a: "", b: "" }, proposeNewTexts: () => returned as never }),
    );
    const params = { candidate: { a: "", b: "" }, reflective_dataset: {}, components_to_update: ["b"] };
    const { error } = await call(server, "propose_new_texts", params);
    expect(error).toMatchObject({ code: -32025, data: { stage: "propose_new_texts" } });
    expect(error.message).toContain(`proposeNewTexts() ${message}; return an object from component to new text`);
  });
  it("what is no text of Unicode is refused by its component", async () => {
    const texts = { a: "x", b: { text: "y" }, c: "half \ud83d", d: undefined };
    const program = programOf({ seedCandidate: { a: "", b: "", c: "", d: "" }, proposeNewTexts: () => texts as never });
    const components = ["a", "b", "c", "d"];
    const params = {
      candidate: Object.fromEntries(components.map((name) => [name, ""])),
      reflective_dataset: {},
      components_to_update: components,
    };
    expect((await call(await served(program), "propose_new_texts", params)).result).toEqual({
      texts: { a: "x" },
      refused: { b: "an object is no text", c: "it holds half of a surrogate pair" },
    });
  });
});
