// What examples do over the network decides whether a failure is theirs. Clients of npm: tests/rpc_server/program/test_network_failures_in_node.py.
import { randomBytes } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer, get, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createDatabase } from "node:net";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { brotliCompressSync, createUnzip, gunzipSync, gzipSync } from "node:zlib";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { tracedFetch } from "../src/index.js";
import { traced } from "../src/steps/ai-sdk.js";
import { batchProgramOf, evaluate, hostOf, programOf, served, temporaryFolder } from "./support.js";

const OVERLOADED = { error: { type: "overloaded_error", message: "Overloaded" } };
const EVENTS = { "content-type": "text/event-stream" };
const MODEL = "/v1/chat/completions";
const asked = { method: "POST", body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "Hi" }] }) };
const similar = { ...asked, body: asked.body.replace("Hi", "Ho") };
const other = { method: "POST", body: JSON.stringify({ model: "m", messages: [] }) };

const LINES = { "content-type": "application/x-ndjson" };
const CHUNK = 'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}\n\n';
const DONE = "data: [DONE]\n\n";
/** Answers with 200 by name: the type of their content, and the content. */
const OUTAGES: Record<string, readonly [type: object, body: string | Uint8Array]> = {
  "an error in several lines of an event": [EVENTS, `data: {"error":\ndata: {"code": 503}}\n\n${DONE}`],
  "an event that ends lines with CR": [EVENTS, `event: error\rdata: ${JSON.stringify(OVERLOADED)}\r\rdata: [DONE]\r\r`],
  "an event that ends lines with CR LF": [EVENTS, `event: error\r\ndata: no upstream\r\n\r\ndata: [DONE]\r\n\r\n`],
  "an error in a choice": [{ "content-type": "application/json" }, '{"choices": [{"error": {"code": 502}}]}'],
  "an error in a choice of an event": [EVENTS, `data: {"choices": [{"error": {"code": 502}}]}\n\n${DONE}`],
  "a context that was cancelled": [LINES, '{"done": false}\n{"error": "upstream: context canceled"}\n{"done": true}\n'],
  "an error in JSON that is called text": [
    { "content-type": "text/plain", "retry-after-ms": "1500" },
    JSON.stringify(OVERLOADED),
  ],
  "an error line after 200 kB": [
    LINES,
    `${`{"text": "${"x".repeat(1000)}"}\n`.repeat(200)}{"error": "overloaded"}\n{"done": true}\n`,
  ],
  "a failed response": [
    EVENTS,
    'data: {"type": "response.failed", "response": {"error": {"code": "server_error"}}}\n\n',
  ],
  "an error that brotli has compressed": [
    { "content-type": "application/json", "content-encoding": "br" },
    brotliCompressSync(JSON.stringify(OVERLOADED)),
  ],
  "no event": [EVENTS, ": keep-alive\n\n"],
  "no end of its chunks": [EVENTS, CHUNK],
  "no end of its response": [EVENTS, 'data: {"type": "response.created"}\n\n'],
  "no end of its message": [EVENTS, 'data: {"type": "message_start", "message": {"stop_reason": null}}\n\n'],
  "no end of its candidates": [EVENTS, 'data: {"candidates": [{"content": {}}]}\n\n'],
  "no end of its lines": [LINES, '{"model": "m", "created_at": "2026", "done": false}\n'],
};
const HEALTHY: Record<string, readonly [type: object, body: string | Uint8Array]> = {
  "an event of an error refuses it": [
    EVENTS,
    `event: error\ndata: {"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}\n\n`,
  ],
  "a stream ends in [DONE]": [EVENTS, CHUNK + DONE],
  "a stream ends with a reason": [EVENTS, 'data: {"choices": [{"finish_reason": "stop"}]}\n\ndata: {"choices": []}'],
  "a long event is the end": [
    EVENTS,
    `${CHUNK}data: {"choices": [{"delta": {"content": "${"x".repeat(200_000)}"}, "finish_reason": "stop"}]}\n\n`,
  ],
  "a response is incomplete": [EVENTS, 'data: {"type": "response.created"}\r\rdata: {"type": "response.incomplete"}'],
  "a message stops": [EVENTS, 'data: {"type": "message_start"}\n\ndata: {"type": "message_stop"}\n\n'],
  "candidates finish": [EVENTS, 'data: {"candidates": [{"finishReason": "STOP"}]}\n\n'],
  "lines are done": [LINES, '{"done": false}\n{"done": true}\n'],
  "a stream is compressed": [{ ...EVENTS, "content-encoding": "gzip" }, gzipSync(CHUNK + DONE)],
  "a long stream is compressed": [
    { ...EVENTS, "content-encoding": "gzip" },
    gzipSync(`data: ${randomBytes(400_000).toString("hex")}\n\n${DONE}`),
  ],
  "a stream is of no known kind": [EVENTS, "data: a\n\n"],
};

/** A package of a database's client, whose error has no code. */
const POOL = `import { connect } from "node:net";
export const open = (port) => new Promise((opened) => {
  const socket = connect(port, "127.0.0.1", () => opened(() => new Promise((_, reject) => {
    socket.once("close", () => reject(new Error("closed"))).resume().write("x");
  })));
});`;

const CUT = gzipSync("data").subarray(0, 8);

let host = "";
let url = "";
const counts = new Map<string, number>();

function answer(request: IncomingMessage, response: ServerResponse): unknown {
  const [, how = "", id = ""] = decodeURIComponent(request.url ?? "").split("/");
  const [type, body] = OUTAGES[how] ?? HEALTHY[how] ?? [];
  const json = (status: number, value: unknown, headers = {}) => {
    response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(value));
  };
  if (how === "once" || how === "then silent") {
    const count = (counts.get(id) ?? 0) + 1;
    counts.set(id, count);
    if (count > 1 && how === "then silent") return undefined;
    return setTimeout(() => json(count === 1 ? 503 : 200, {}), 20 * (count - 1));
  }
  if (/^\d+$/.test(how)) return json(Number(how), {}, { "retry-after": "7" });
  if (type !== undefined) return response.writeHead(200, { ...type }).end(body);
  if (how === "silent") return undefined;
  if (how === "body") return json(200, OVERLOADED);
  if (how === "words") return json(200, { error: "the model is overloaded" });
  if (how === "zipped") {
    response.writeHead(200, { "content-type": "application/json", "content-encoding": "gzip" });
    return response.end(gzipSync(JSON.stringify(OVERLOADED)));
  }
  if (how === "event" || how === "rejection") {
    response.writeHead(200, EVENTS).write('data: {"choices": []}\n\ndata: {"err');
    const rest = how === "event" ? 'or": {"message": "no"}}' : 'or": {"type": "invalid_request_error"}}';
    return setTimeout(() => response.end(`${rest}\n\ndata: [DONE]\n\n`), 5);
  }
  return json(200, { choices: [] });
}

beforeAll(async () => {
  const server = createServer(answer);
  host = await hostOf(server);
  url = `http://${host}`;
  return () => server.closeAllConnections();
});

async function resultOf(run: () => unknown, options: object = {}): Promise<any> {
  return (await evaluate(await served(programOf({ run }), options), [1]))[0];
}

/** As programs do that take no notice of failures. */
async function answerOf(how: string, init: RequestInit = asked, path = MODEL): Promise<string> {
  try {
    return await (await fetch(`${url}/${how}${path}`, init)).text();
  } catch {
    return "";
  }
}

const mock = (status: number, body: string, headers = {}) =>
  tracedFetch(async () => new Response(body, { status, headers }));
const failing = (parts: object[]) => ({
  specificationVersion: "v2",
  provider: "p",
  modelId: "m",
  supportedUrls: {},
  doGenerate: () => Promise.reject(Object.assign(new Error("no"), { statusCode: 529 })),
  doStream: async () => ({ stream: ReadableStream.from(parts) }),
});

async function readParts(parts: object[]): Promise<string> {
  const { stream } = await traced(failing(parts) as never as Parameters<typeof traced>[0]).doStream({});
  for await (const _ of stream as never as AsyncIterable<unknown>);
  return "";
}

describe("an example that returned", () => {
  it.each<[string, () => unknown]>([
    ["429", () => answerOf("429")],
    ["500", () => answerOf("500")],
    ["an error body in a 200", () => answerOf("body")],
    ["a compressed error body", () => answerOf("zipped")],
    ["an error in words in a 200", () => answerOf("words")],
    ["an error event", () => answerOf("event")],
    ...Object.keys(OUTAGES).map((how): [string, () => unknown] => [how, () => answerOf(how)]),
    [
      "an answer, and a repetition that the program cancelled",
      async () => {
        const path = `/a repetition of ${crypto.randomUUID()}${MODEL}`;
        await answerOf("then silent", asked, path);
        return answerOf("then silent", { ...asked, signal: AbortSignal.timeout(50) }, path);
      },
    ],
    ["another branch that succeeded", () => Promise.all([answerOf("503"), answerOf("200", other)])],
    [
      "one of two branches whose requests differ in their content alone",
      () => Promise.all([asked, similar].map((each) => answerOf("once", each, `/branches${MODEL}`))),
    ],
    [
      "a page of another host that was found afterwards",
      async () => [await answerOf("503"), (await fetch(url.replace("127.0.0.1", "localhost"))).status],
    ],
    ["a `fetch` of its own", async () => (await mock(429, "")("http://m.example/v1/messages", asked)).text()],
    [
      "a `fetch` of its own that AWS throttled",
      async () => {
        const throttled = mock(400, "{}", { "x-amzn-errortype": "ThrottlingException" });
        return (await throttled("http://m.example/v1/messages", asked)).text();
      },
    ],
    [
      "a `fetch` of its own with an error event",
      async () =>
        (
          await mock(
            200,
            'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n',
            EVENTS,
          )("http://m.example/v1/messages", asked)
        ).text(),
    ],
    [
      "a model of its own",
      () =>
        traced(failing([]) as never as Parameters<typeof traced>[0])
          .doGenerate({})
          .then(String, () => ""),
    ],
    [
      "an error part of a stream",
      () => readParts([{ type: "error", error: Object.assign(new Error("no"), { statusCode: 429 }) }]),
    ],
  ])("after its last call of a model failed by %s is no result", async (_, run) => {
    expect(await resultOf(run)).toMatchObject({
      status: "infra_error",
      score: null,
      error: { type: "model_unavailable" },
    });
    expect(await resultOf(run, { trustResults: true })).toMatchObject({ status: "ok", score: 1 });
  });

  it.each<[string, () => unknown]>([
    [
      "the same request succeeded",
      async () => [await answerOf("once", asked, `/a${MODEL}`), await answerOf("once", asked, `/a${MODEL}`)],
    ],
    ["another request to its host succeeded", async () => [await answerOf("503"), await answerOf("200", other)]],
    [
      "it was no call of a model",
      () => answerOf("503", { method: "POST", body: '{"text": "Hi"}' }, "/channels/1/messages"),
    ],
    ["it was refused for what it sent", () => answerOf("400")],
    ["it was refused by an event", () => answerOf("rejection")],
    ...Object.keys(HEALTHY).map((how): [string, () => unknown] => [how, () => answerOf(how)]),
    [
      "a stream without an end is of no model",
      () => answerOf("no end of its chunks", { method: "POST", body: "{}" }, "/polls"),
    ],
    ["the program cancelled it", () => answerOf("silent", { ...asked, signal: AbortSignal.timeout(50) })],
  ])("is a result if %s", async (_, run) => {
    expect((await resultOf(run)).status).toBe("ok");
  });

  it("keeps its output, and names host, reason and the option", async () => {
    const result = await resultOf(() => answerOf("429").then(() => "sorry"));
    const message = `the last call of a model failed: HTTP 429 from ${host}; the option trustResults takes what the program returned`;
    expect(result).toMatchObject({ output: "sorry", error: { message } });
    expect(result.hosts).toEqual({ [host]: { succeeded: 0, failed: 1, reason: "429", retry_after_s: 7 } });
    expect((await resultOf(() => answerOf("200"))).hosts).toEqual({ [host]: { succeeded: 1, failed: 0 } });
    const { hosts } = await resultOf(() => answerOf("an error in JSON that is called text"));
    expect(hosts[host]).toMatchObject({ failed: 1, retry_after_s: 1.5 });
  });

  it("has called a model at each host of `modelHosts`", async () => {
    const run = () => answerOf("503", { method: "POST", body: "Hi" }, "/ask");
    expect((await resultOf(run)).status).toBe("ok");
    expect((await resultOf(run, { modelHosts: [host] })).status).toBe("infra_error");
    expect((await resultOf(run, { modelHosts: ["127.0.0.1"] })).status).toBe("infra_error");
    await expect(served(programOf(), { modelHosts: "models" as never })).rejects.toThrow(
      "`modelHosts` must be an array",
    );
  });

  it("is not scored if the judge's model failed, nor one of a batch", async () => {
    const score = async () => Number((await answerOf("503")) === "never");
    expect(await evaluate(await served(programOf({ score })), [1])).toMatchObject([{ status: "infra_error" }]);
    const unscored = { status: "rollout" } as never;
    const judge = batchProgramOf({ evaluate: () => answerOf("503").then(() => [1, unscored]) });
    expect(await evaluate(await served(judge), [1, 2])).toMatchObject([
      { status: "infra_error" },
      { status: "infra_error" },
    ]);
  });
});

describe("an example that threw", () => {
  const throwing = (text: string, before: () => unknown) => async () => {
    await before();
    throw new Error(text);
  };
  const tool = (how: string) => answerOf(how, {}, "/tool");
  it.each<[string, () => unknown, string]>([
    ["names the status of a failed call", throwing("the tool answered 503", () => tool("503")), "infra_error"],
    ["names no call, after a call of a model failed", throwing("no answer", () => answerOf("429")), "infra_error"],
    ["names no call, after a tool failed", throwing("no answer", () => tool("503")), "program_error"],
    [
      "names a status that the program dealt with",
      throwing("503", async () => [await tool("503"), await tool("200")]),
      "program_error",
    ],
    [
      "names a status that was the program's own",
      throwing("the tool answered 404", () => tool("404")),
      "program_error",
    ],
    [
      "has an error with a status that the program dealt with",
      async () => {
        await Promise.all([tool("503")]);
        await tool("200");
        throw Object.assign(new Error("late"), { status: 503 });
      },
      "program_error",
    ],
    [
      "waited as long as it wanted",
      async () => fetch(`${url}/silent`, { signal: AbortSignal.timeout(50) }),
      "program_error",
    ],
    [
      "stopped its call for a limit with a name of its own",
      async () => {
        await answerOf("silent", { ...asked, signal: AbortSignal.timeout(50) });
        throw Object.assign(new Error("my limit"), { name: "MyTimeoutError" });
      },
      "program_error",
    ],
    [
      "is the program's by its own word, after a call of a model failed",
      async () => {
        await answerOf("503");
        throw Object.assign(new Error("odd row"), { retryable: false });
      },
      "program_error",
    ],
    ["reads damaged data of its own", async () => gunzipSync(CUT), "program_error"],
    [
      "reads a damaged stream of its own",
      () => new Promise((_, reject) => createUnzip().on("error", reject).end(CUT)),
      "program_error",
    ],
    [
      "has the error of a connection",
      () => new Promise((_, reject) => get("http://127.0.0.1:1/", () => {}).on("error", reject)),
      "infra_error",
    ],
  ])("and %s is judged by its calls", async (_, run, status) => {
    expect((await resultOf(run)).status).toBe(status);
  });

  it("and lost the connection that a package had opened before is no fault of the program", async () => {
    const database = createDatabase((socket) => socket.on("error", () => {}).once("data", () => socket.end()));
    onTestFinished(() => void database.close());
    const client = join(temporaryFolder(), "node_modules", "pool", "index.mjs");
    mkdirSync(join(client, ".."), { recursive: true });
    writeFileSync(client, POOL);
    await served(programOf()); // from here on connections are watched
    const { open } = await import(pathToFileURL(client).href);
    const ask = await open((await hostOf(database)).split(":")[1]);
    await new Promise((resolve) => setTimeout(resolve, 5)); // the example begins after the connection
    expect((await resultOf(ask)).status).toBe("infra_error");
    expect((await resultOf(throwing("mine", () => {}))).status).toBe("program_error");
  });

  it("names host and reason of the call", async () => {
    const later = await resultOf(throwing("no answer", async () => [await answerOf("429"), await answerOf("words")]));
    expect(later.hosts).toEqual({ [host]: { succeeded: 0, failed: 2, reason: expect.any(String) } });
    const result = await resultOf(throwing("no answer", () => answerOf("event")));
    expect(result.error.message).toBe(`no answer [error in its answer from ${host}]`);
  });

  it("and one past its deadline is no fault of the program if its last call of a model failed", async () => {
    const hang = (how: string) => async () => {
      await answerOf(how);
      await new Promise(() => {});
    };
    expect((await resultOf(hang("503"), { exampleTimeoutS: 0.3 })).status).toBe("infra_error");
    expect((await resultOf(hang("200"), { exampleTimeoutS: 0.3 })).status).toBe("timeout");
  });
});
