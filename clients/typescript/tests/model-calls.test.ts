// Calls of models by `tracedFetch` and by `traced` models: steps, and usage of the example, without OpenTelemetry.
import { expect, it, onTestFinished } from "vitest";
import type { RunContext } from "../src/program/program.js";
import { traced } from "../src/steps/ai-sdk.js";
import { tracedFetch } from "../src/steps/traced-fetch.js";
import { call, programOf, ranProgram, served } from "./support.js";

const seedCandidate = { planner: "Plan the trip in days." };
const system = seedCandidate.planner;
const ROME = { role: "user", content: "Rome?" };
const SYSTEM = { role: "system", content: system };
const SEARCH = { role: "assistant", content: "First", tool_calls: [{ name: "search", arguments: { city: "Rome" } }] };
const seconds = expect.any(Number);
const counted = { calls: 1, input_tokens: 100, output_tokens: 20 };

type Run = (context: RunContext) => unknown;

/** The result of an example of a program with one component, and what was logged. */
async function ran(run: Run, params?: object) {
  const found = await ranProgram(programOf({ seedCandidate, run: (_, __, context) => run(context) }), [0], params);
  expect(found.result.error).toBeUndefined();
  return found;
}

const events = (...all: object[]): string => all.map((each) => `event: x\ndata: ${JSON.stringify(each)}\n\n`).join("");

/** A provider that gives an answer of an API, at once or as events that arrive in pieces of a few bytes. */
function answering(answer: object | string, { status = 200, pieces = 7 } = {}): typeof fetch {
  const isStream = typeof answer === "string";
  const bytes = new TextEncoder().encode(isStream ? answer : JSON.stringify(answer));
  const body = new ReadableStream({
    start(controller) {
      for (let at = 0; at < bytes.length; at += pieces) controller.enqueue(bytes.subarray(at, at + pieces));
      controller.close();
    },
  });
  const headers = { "content-type": isStream ? "text/event-stream; charset=utf-8" : "application/json" };
  return async () => new Response(body, { status, headers });
}

const post = (body: object | string): RequestInit => ({
  method: "POST",
  body: typeof body === "string" ? body : JSON.stringify(body),
});

const CHAT_USAGE = {
  prompt_tokens: 100,
  completion_tokens: 20,
  total_tokens: 120,
  prompt_tokens_details: { cached_tokens: 40 },
};
const RESPONSES_USAGE = { input_tokens: 100, output_tokens: 20, input_tokens_details: { cached_tokens: 40 } };
const ANTHROPIC_USAGE = {
  input_tokens: 50,
  output_tokens: 20,
  cache_read_input_tokens: 40,
  cache_creation_input_tokens: 10,
  cache_creation: { ephemeral_5m_input_tokens: 6, ephemeral_1h_input_tokens: 4 },
};
const COMPLETED = {
  output: [
    { type: "reasoning", summary: [] },
    { type: "message", role: "assistant", content: [{ type: "output_text", text: "First" }] },
    { type: "function_call", name: "search", arguments: '{"city": "Rome"}' },
  ],
  usage: RESPONSES_USAGE,
};
const chunk = (delta: object, more = {}) => ({ choices: [{ index: 0, delta }], ...more });
const part = (index: number, fn: object) => chunk({ tool_calls: [{ index, function: fn }] });

const CALLS: Record<string, { path: string; asked: object; answer: object | string; written?: number }> = {
  "a chat completion": {
    path: "/v1/chat/completions",
    asked: { messages: [SYSTEM, ROME] },
    answer: {
      choices: [
        {
          message: {
            role: "assistant",
            content: "First",
            tool_calls: [{ type: "function", function: { name: "search", arguments: '{"city": "Rome"}' } }],
          },
        },
      ],
      usage: CHAT_USAGE,
    },
  },
  "a streamed chat completion": {
    path: "/v1/chat/completions",
    asked: { messages: [SYSTEM, ROME], stream: true },
    answer: `${events(
      chunk({ role: "assistant", content: "Fir" }),
      chunk({ content: "st" }),
      part(0, { name: "search", arguments: '{"ci' }),
      part(0, { arguments: 'ty": "Rome"}' }),
      { choices: [], usage: CHAT_USAGE },
    )}data: [DONE]\n\n`,
  },
  "a response": {
    path: "/v1/responses",
    asked: { instructions: system, input: "Rome?" },
    answer: COMPLETED,
  },
  "a streamed response": {
    path: "/v1/responses?x=1",
    asked: { instructions: system, input: [{ role: "user", content: [{ type: "input_text", text: "Rome?" }] }] },
    answer: events(
      { type: "response.created", response: { output: [] } },
      { type: "response.output_text.delta", delta: "First" },
      { type: "response.completed", response: COMPLETED },
    ),
  },
  "a message of Anthropic": {
    path: "/v1/messages",
    asked: { system: [{ type: "text", text: system }], messages: [ROME] },
    answer: {
      content: [
        { type: "thinking", thinking: "hm" },
        { type: "text", text: "First" },
        { type: "tool_use", name: "search", input: { city: "Rome" } },
      ],
      usage: ANTHROPIC_USAGE,
    },
    written: 10,
  },
  "a streamed message of Anthropic": {
    path: "/v1/messages",
    asked: { system, messages: [ROME], stream: true },
    answer: events(
      { type: "message_start", message: { usage: { ...ANTHROPIC_USAGE, output_tokens: 1 } } },
      { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
      { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Fir" } },
      { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "st" } },
      { type: "content_block_start", index: 1, content_block: { type: "tool_use", name: "search", input: {} } },
      { type: "content_block_delta", index: 1, delta: { type: "input_json_delta", partial_json: '{"city": ' } },
      { type: "content_block_delta", index: 1, delta: { type: "input_json_delta", partial_json: '"Rome"}' } },
      { type: "message_delta", delta: {}, usage: { output_tokens: 20 } },
      { type: "message_stop" },
    ),
    written: 10,
  },
};

it.each(Object.entries(CALLS))("%s by tracedFetch is a step, and the program gets it as it is", async (_, given) => {
  const { path, asked, answer, written } = given;
  const expected = typeof answer === "string" ? answer : JSON.stringify(answer);
  const ask = async (): Promise<string> => {
    const response = await tracedFetch(answering(answer))(
      `http://models.invalid${path}`,
      post({ model: "m", ...asked }),
    );
    expect(response.ok).toBe(true);
    return response.text();
  };
  const { result, steps, logged } = await ran(ask);
  expect(result.output).toBe(expected);
  const writes = written === undefined ? {} : { cache_write_tokens: written, cache_write_hour_tokens: 4 };
  const cached = { cached_input_tokens: 40, ...writes };
  const usage = { ...counted, models: { m: { ...counted, ...cached } } };
  const inputs = { messages: [SYSTEM, ROME], model: "m" };
  expect(steps).toEqual([{ component: "planner", inputs, outputs: [SEARCH], usage, seconds }]);
  expect(result.usage).toEqual(usage);
  expect(logged).toEqual([]);
  const untraced = await ran(ask, {});
  expect(untraced.result).not.toHaveProperty("trajectory");
  expect(untraced.result.usage).toEqual(usage);
});

it("each choice of a streamed chat completion is read", async () => {
  const choice = (index: number, content: string): object => ({ choices: [{ index, delta: { content } }] });
  const answer = `${events(choice(1, "two"), choice(0, "one"), choice(1, "!"))}data: [DONE]\n\n`;
  const fetch = tracedFetch(answering(answer));
  const asked = post({ model: "m", messages: [ROME], stream: true, n: 2 });
  const { steps } = await ran(async () => (await fetch("http://models.invalid/v1/chat/completions", asked)).text());
  expect(steps[0].outputs).toMatchObject([{ content: "one" }, { content: "two!" }]);
});

it("calls of tools in the input of a response are messages", async () => {
  const input = [
    { role: "developer", content: system },
    ROME,
    { type: "reasoning", id: "rs_1", summary: [] },
    { type: "function_call", call_id: "call_1", name: "search", arguments: '{"city":"Rome"}' },
    { type: "function_call_output", call_id: "call_1", output: '{"found":1}' },
  ];
  const fetch = tracedFetch(answering(COMPLETED));
  const { steps } = await ran(() => fetch("http://models.invalid/v1/responses", post({ model: "m", input })));
  expect(steps[0].inputs.messages).toEqual([
    { role: "developer", content: system },
    ROME,
    { ...SEARCH, content: null },
    { role: "tool", content: { found: 1 } },
  ]);
});

it("other requests pass through tracedFetch, and are no steps", async () => {
  const seen: unknown[] = [];
  const fetch = tracedFetch(async (...given) => {
    seen.push(given);
    return new Response("ok");
  });
  const requests: [string | URL | Request, RequestInit?][] = [
    ["http://models.invalid/v1/models"],
    ["http://models.invalid/v1/chat/completions", { method: "GET" }],
    [new URL("http://models.invalid/v1/embeddings"), post({ model: "m", input: "x" })],
    ["http://models.invalid/v1/messages", post("no JSON")],
    ["http://models.invalid/v1/messages", post("{}")],
    ["/relative"],
  ];
  const { result, steps } = await ran(async () => {
    for (const request of requests) expect(await (await fetch(...request)).text()).toBe("ok");
  });
  expect(seen.map((each) => (each as unknown[])[0])).toEqual(requests.map(([url]) => url));
  expect(steps).toBeUndefined();
  expect(result.usage).toBeUndefined();
});

it("a Request, messages that change later, and an answer of an unknown form are recorded", async () => {
  const messages = [SYSTEM, { ...ROME }];
  const { steps } = await ran(async () => {
    const request = new Request("http://models.invalid/v1/messages", post({ model: "m", messages }));
    const response = tracedFetch(answering({ odd: true }))(request);
    messages.push({ role: "user", content: "later" });
    await (await response).json();
  });
  const inputs = { messages: [SYSTEM, ROME], model: "m" };
  const usage = { calls: 1, models: { m: { calls: 1 } } };
  expect(steps).toEqual([{ component: "planner", inputs, outputs: null, usage, seconds }]);
});

it("a stream that the program leaves early is left at its provider too", async () => {
  let reason: unknown;
  const body = new ReadableStream({
    pull: (controller) => controller.enqueue(new TextEncoder().encode("data: {}\n\n")),
    cancel: (given) => {
      reason = given;
    },
  });
  const fetch = tracedFetch(async () => new Response(body, { headers: { "content-type": "text/event-stream" } }));
  const asked = post({ model: "m", messages: [ROME], stream: true });
  await (await fetch("http://models.invalid/v1/messages", asked)).body?.cancel("enough");
  expect(reason).toBe("enough");
});

it("calls that fail are steps with an error, and thrown or returned as they are", async () => {
  const url = "http://models.invalid/v1/chat/completions";
  const asked = post({ model: "m", messages: [SYSTEM, ROME] });
  const broken = new TypeError("fetch failed");
  const cut = new ReadableStream({
    pull: (controller) => controller.error(new Error("connection lost")),
  });
  const headers = { "content-type": "text/event-stream" };
  const { result, steps } = await ran(async () => {
    const limited = await tracedFetch(answering({ error: "slow down" }, { status: 429 }))(url, asked);
    expect([limited.status, await limited.json()]).toEqual([429, { error: "slow down" }]);
    const failing = tracedFetch(() => Promise.reject(broken));
    await expect(failing(url, asked)).rejects.toBe(broken);
    const streaming = await tracedFetch(async () => new Response(cut, { headers }))(url, asked);
    await expect(streaming.text()).rejects.toThrow("connection lost");
  });
  expect(steps.map(({ component, error }: any) => [component, error])).toEqual([
    ["planner", { type: "HTTP 429", message: "the provider answered with HTTP 429" }],
    ["planner", { type: "TypeError", message: "fetch failed" }],
    ["planner", { type: "Error", message: "connection lost" }],
  ]);
  expect(result.usage).toBeUndefined();
});

it("a stream that the program leaves early ends with what came, and one that is not read is unfinished", async () => {
  const url = "http://models.invalid/v1/chat/completions";
  const asked = post({ model: "m", messages: [SYSTEM, ROME], stream: true });
  const answer = events(chunk({ content: "first" }), chunk({ content: "second" }));
  const { steps, logged } = await ran(async () => {
    const fetch = () => tracedFetch(answering(answer, { pieces: 70 }))(url, asked);
    const { body } = await fetch();
    for await (const _ of body as any) break;
    await fetch();
  });
  expect(steps).toMatchObject([{ outputs: expect.stringMatching(/^first/) }, { error: { type: "unfinished" } }]);
  expect(logged).toEqual(['the step of the span "chat m" had not ended when `run` returned; await it there']);
});

it("usage that the program states counts instead of the measured one, and what is unknown of a call is unknown of all", async () => {
  const url = "http://models.invalid/v1/chat/completions";
  const ask = async (usage?: object, model = "m") => {
    const choices = [{ message: { role: "assistant", content: "so" } }];
    await (await tracedFetch(answering({ choices, usage }))(url, post({ model, messages: [ROME] }))).json();
  };
  const stated = await ran(async ({ usage }) => {
    await ask(CHAT_USAGE);
    usage.cost_usd = 0.5;
  });
  expect(stated.result.usage).toEqual({ cost_usd: 0.5 });
  const partly = await ran(async () => {
    await ask(CHAT_USAGE);
    await ask();
    await ask({ ...CHAT_USAGE, prompt_tokens_details: { audio_tokens: 3 } });
  });
  expect(partly.result.usage).toEqual({ calls: 3, models: { m: { calls: 3, cached_input_tokens: 40 } } });
  const both = await ran(async () => {
    for (const model of ["m", "n"]) await ask(CHAT_USAGE, model);
  });
  const each = { ...counted, cached_input_tokens: 40 };
  expect(both.result.usage).toMatchObject({ calls: 2, input_tokens: 200, models: { m: each, n: each } });
});

/** A language model as the AI SDK has it, of a version of its specification. */
function modelOf(parts: object, { version = "v3", ...more }: any = {}) {
  return {
    specificationVersion: version,
    provider: "tests",
    modelId: "m",
    supportedUrls: { "image/*": [/./] },
    doGenerate: async (_options: any): Promise<any> => parts,
    doStream: async (_options: any): Promise<any> => ({ stream: streamOf(parts as object[]), request: { body: 1 } }),
    ...more,
  };
}

const streamOf = (parts: object[]): ReadableStream<any> =>
  new ReadableStream({
    start(controller) {
      for (const each of parts) controller.enqueue(each);
      controller.close();
    },
  });

const PROMPT = [SYSTEM, { role: "user", content: [{ type: "text", text: "Rome?" }] }];
const TOOL_CALL = { type: "tool-call", toolCallId: "1", toolName: "search", input: '{"city": "Rome"}' };
const V2_USAGE = { inputTokens: 100, outputTokens: 20, totalTokens: 120, cachedInputTokens: 40 };
const V3_USAGE = {
  inputTokens: { total: 100, noCache: 60, cacheRead: 40, cacheWrite: 0 },
  outputTokens: { total: 20, text: 20, reasoning: 0 },
};

it.each<[string, object]>([
  ["a priority tier", { service_tier: "priority" }],
  ["sources from the web", { choices: [{ message: { content: "so", annotations: [{ type: "url_citation" }] } }] }],
  ["a tool of the provider", { output: [{ type: "web_search_call" }] }],
  ["searches of the provider", { usage: { ...CHAT_USAGE, server_tool_use: { web_search_requests: 1 } } }],
])("what a call with %s costs is unknown, as its counts do not show it", async (_, more) => {
  const answer = { choices: [{ message: { content: "so" } }], usage: CHAT_USAGE, ...more };
  const asked = post({ model: "m", messages: [ROME] });
  const { result } = await ran(async () => {
    await (await tracedFetch(answering(answer))("http://models.invalid/v1/chat/completions", asked)).text();
  });
  expect(result.usage).toEqual({ calls: 1, models: { m: { calls: 1 } } });
});

it.each([
  ["v2", V2_USAGE],
  ["v3", V3_USAGE],
])("calls of a traced model of version %s are steps, generated and streamed", async (version, usage) => {
  const generated = { content: [{ type: "reasoning", text: "hm" }, { type: "text", text: "First" }, TOOL_CALL], usage };
  const parts = [
    { type: "stream-start", warnings: [] },
    { type: "text-delta", id: "1", delta: "Fir" },
    { type: "text-delta", id: "1", delta: "st" },
    TOOL_CALL,
    { type: "finish", usage, finishReason: "stop" },
  ];
  const { result, steps } = await ran(async () => {
    const model = traced(modelOf(generated, { version }));
    expect(model).toMatchObject({ specificationVersion: version, provider: "tests", modelId: "m" });
    expect(model.supportedUrls).toEqual({ "image/*": [/./] });
    expect(await model.doGenerate({ prompt: PROMPT })).toBe(generated);
    const { stream, request } = await traced(modelOf(parts, { version })).doStream({ prompt: PROMPT });
    expect(request).toEqual({ body: 1 });
    const read: unknown[] = [];
    for await (const each of stream) read.push(each);
    expect(read).toEqual(parts);
  });
  const inputs = { messages: [SYSTEM, ROME], model: "m" };
  const cached = { calls: 1, input_tokens: 100, output_tokens: 20, cached_input_tokens: 40 };
  const of = { component: "planner", inputs, outputs: [SEARCH], usage: { ...counted, models: { m: cached } }, seconds };
  expect(steps).toEqual([of, of]);
  expect(result.usage).toMatchObject({ calls: 2, input_tokens: 200, models: { m: { calls: 2 } } });
});

it("a stream of a traced model that the program leaves early ends with what came", async () => {
  const parts = ["Fir", "st"].map((delta) => ({ type: "text-delta", id: "1", delta }));
  const { steps, logged } = await ran(async () => {
    const { stream } = await traced(modelOf(parts)).doStream({ prompt: PROMPT });
    for await (const _ of stream) break;
  });
  expect(steps).toMatchObject([{ component: "planner", outputs: expect.stringMatching(/^Fir/) }]);
  expect(logged).toEqual([]);
});

it("errors of a traced model are thrown as they are, and those within a stream are the step's", async () => {
  const broken = new Error("overloaded");
  const { steps } = await ran(async () => {
    const model = traced(modelOf([{ type: "error", error: broken }], { doGenerate: () => Promise.reject(broken) }));
    await expect(model.doGenerate({ prompt: PROMPT })).rejects.toBe(broken);
    const { stream } = await model.doStream({ prompt: PROMPT });
    for await (const _ of stream);
  });
  const error = { type: "Error", message: "overloaded" };
  expect(steps).toMatchObject([{ error }, { error }]);
});

/** Make a call as version 7 of the AI SDK does: with the integrations that are registered globally. */
async function generating(callId: string, { instructions, answer = "so", tool, fail, make }: any) {
  const all: any[] = (globalThis as any).AI_SDK_TELEMETRY_INTEGRATIONS ?? [];
  const report = (name: string, event: object) => {
    for (const each of all) each[name]?.({ callId, ...event });
  };
  const wrapped = (name: string, execute: () => Promise<unknown>, event: object): Promise<unknown> =>
    all.reduce(
      (inner, each) => (each[name] ? () => each[name]({ callId, ...event, execute: inner }) : inner),
      execute,
    )();
  const messages = [{ role: "user", content: "Rome?" }];
  report("onLanguageModelCallStart", { provider: "tests", modelId: "m", instructions, messages });
  await wrapped("executeLanguageModelCall", async () => make?.(), {});
  if (fail) return report("onError", { error: new Error("overloaded") });
  report("onLanguageModelCallEnd", { content: [{ type: "text", text: answer }], usage: V3_USAGE });
  if (!tool) return;
  const toolCall = { toolCallId: "1", toolName: "search", input: { city: "Rome" } };
  const failed = await wrapped("executeTool", async () => void (await tool()), { toolCall }).catch((error) => ({
    error,
  }));
  report("onToolExecutionEnd", { toolCall, toolOutput: failed ?? { output: "sunny" } });
}

it("calls of the AI SDK are steps by themselves from version 7 on, with its tools", async () => {
  const { result, steps, logged } = await ran(async ({ step }) => {
    const searching = () => step({ name: "lookup" }, {}, () => generating("b", { instructions: { ...SYSTEM } }));
    await generating("a", { instructions: system, tool: searching });
    await generating("c", { instructions: [SYSTEM], fail: true });
    await generating("d", { tool: () => Promise.reject(new Error("no luck")) });
  });
  const inputs = { messages: [SYSTEM, ROME], model: "m" };
  const usage = { ...counted, models: { m: { ...counted, cached_input_tokens: 40 } } };
  const asked = { component: "planner", inputs, outputs: "so", usage, seconds };
  const found = { name: "search", inputs: { city: "Rome" }, outputs: "sunny", seconds };
  expect(steps).toMatchObject([
    asked,
    { ...found, steps: [{ name: "lookup", steps: [asked] }] },
    { component: "planner", error: { type: "Error", message: "overloaded" } },
    { name: "chat m" },
    { ...found, outputs: null, error: { type: "Error", message: "no luck" } },
  ]);
  expect(result).not.toHaveProperty("usage");
  expect(logged).toHaveLength(1); // of the call without instructions
  const untraced = await ran(() => generating("a", { instructions: system, tool: () => {} }), {});
  expect(untraced.result).not.toHaveProperty("trajectory");
});

it("an object that the AI SDK generates is a step, once if its model is traced", async () => {
  traced(modelOf({}, { provider: "traced" }));
  const { steps } = await ran(() => {
    const [own] = (globalThis as any).AI_SDK_TELEMETRY_INTEGRATIONS;
    for (const provider of ["other", "traced"]) {
      own.onObjectStepStart({ callId: provider, provider, modelId: "m", promptMessages: [SYSTEM, ROME] });
      own.onObjectStepEnd({ callId: provider, objectText: '{"days": 2}', usage: V3_USAGE });
    }
  });
  const inputs = { messages: [SYSTEM, ROME], model: "m" };
  expect(steps).toMatchObject([{ component: "planner", inputs, outputs: '{"days": 2}', usage: counted }]);
});

it("a call that the AI SDK, a traced model and tracedFetch record is one step, and counts once", async () => {
  const url = "http://models.invalid/v1/chat/completions";
  const fetching = () => tracedFetch(answering({ usage: CHAT_USAGE }))(url, post({ model: "m", messages: [SYSTEM] }));
  const doGenerate = async () => ({ content: [], usage: V3_USAGE, response: await fetching() });
  const { result, steps } = await ran(() =>
    generating("a", {
      instructions: system,
      make: () => traced(modelOf({}, { doGenerate })).doGenerate({ prompt: [] }),
    }),
  );
  expect(steps).toMatchObject([{ component: "planner", outputs: "so" }]);
  expect(steps).toHaveLength(1);
  expect(result.usage).toMatchObject({ calls: 1, input_tokens: 100 });
});

it("calls of the AI SDK of which another integration makes spans are left to that", async () => {
  const all: unknown[] = (globalThis as any).AI_SDK_TELEMETRY_INTEGRATIONS;
  all.push({ tracer: {} });
  onTestFinished(() => void all.pop());
  const { steps } = await ran(() => generating("a", { instructions: system, tool: () => {} }));
  expect(steps).toBeUndefined();
});

it("traced() refuses what is no model", () => {
  expect(() => traced("openai/gpt-5" as never)).toThrow(
    'traced() takes a language model, such as traced(openai("gpt-5")); it got "openai/gpt-5"',
  );
});

it("outside of an example calls of models only pass through", async () => {
  const answer = { choices: [{ message: { content: "so" } }] };
  const response = await tracedFetch(answering(answer))(
    "http://models.invalid/v1/chat/completions",
    post({ model: "m", messages: [] }),
  );
  expect(await response.json()).toEqual(answer);
  const server = await served(programOf());
  expect((await call(server, "discover")).result.program.name).toBe("test");
});
