// Calls the scripted server of answers.mjs by the client and with the failure that each example names, or as a program that
// is healthy would. No client retries a call.
// The first argument is the package, the second the folder in which the libraries are installed, the others are the clients.
import { spawn } from "node:child_process";
import { once } from "node:events";
import http from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [, , evolverpc, folder, ...names] = process.argv;
const require = createRequire(join(folder, "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { serveStdio } = await load(evolverpc);

const server = spawn(process.execPath, [join(import.meta.dirname, "answers.mjs")], { stdio: ["pipe", "pipe", "inherit"] });
const ports = JSON.parse((await once(createInterface({ input: server.stdout }), "line"))[0]);

const apiKey = "key";
const model = "m";
const messages = [{ role: "user", content: "Which city?" }];
const body = JSON.stringify({ model, messages });
const headers = { "content-type": "application/json" };
const STATUSES = ["429", "500", "502", "503", "529", "408"];
const NETWORK = ["refused", "reset", "cut", "DNS"];
const EVERY = [...STATUSES, "quota", ...NETWORK, "silent", "400", "401", "ok"];
const WHOLE = [...EVERY, "error-body"];
const STREAM = [...EVERY, "error-event", "no-end"];
const TEXT_STREAM = STREAM.filter((failure) => !/^40[01]/.test(failure)); // which end empty, without an error

function urlOf(failure) {
  if (failure === "refused") return `http://127.0.0.1:${ports.refused}`;
  return failure === "DNS" ? "http://models.invalid" : `http://127.0.0.1:${ports.web}/${failure}`;
}

/** The texts of the parts of a stream. */
async function textOf(stream, read) {
  let text = "";
  for await (const part of stream) text += read(part) ?? "";
  return text;
}

/** A model of the AI SDK, which leaves time-outs to `fetch`. */
async function aiModel(version, baseURL, timeout) {
  const { createOpenAI } = await load(`@ai-sdk/openai${version}`);
  const undici = await load("undici");
  const dispatcher = new undici.Agent({ headersTimeout: timeout });
  return createOpenAI({ apiKey, baseURL: `${baseURL}/v1`, fetch: (url, init) => fetch(url, { ...init, dispatcher }) }).chat(model);
}
const onError = () => {};

function ai(name, major, version) {
  const asked = async (url, timeout) => ({ model: await aiModel(version, url, timeout), prompt: "Which city?", maxRetries: 0, onError });
  const sdk = () => load(name);
  return {
    [`ai ${major}`]: [name, WHOLE, async (...given) => (await (await sdk()).generateText(await asked(...given))).text],
    [`ai ${major}, stream`]: [name, major === 5 ? STREAM.filter((failure) => failure !== "cut") : STREAM, // 5 waits for ever if it is cut
      async (...given) => await (await sdk()).streamText(await asked(...given)).text],
    [`ai ${major}, text stream`]: [name, TEXT_STREAM, async (...given) => textOf((await sdk()).streamText(await asked(...given)).textStream, String)],
  };
}

async function mastra(url, timeout) {
  const { Agent } = await load("@mastra/core/agent");
  return new Agent({ id: "a", name: "a", instructions: "Answer.", model: await aiModel("", url, timeout), maxRetries: 0 });
}
const modelSettings = { maxRetries: 0 };

async function openai(url, timeout) {
  const { OpenAI } = await load("openai");
  return new OpenAI({ apiKey, baseURL: `${url}/v1`, timeout, maxRetries: 0 }).chat.completions;
}

async function anthropic(url, timeout) {
  const { Anthropic } = await load("@anthropic-ai/sdk");
  return new Anthropic({ apiKey, baseURL: url, timeout, maxRetries: 0 }).messages;
}
const toAnthropic = { model, messages, max_tokens: 9 };

async function langchain(url, timeout) {
  const { ChatOpenAI } = await load("@langchain/openai");
  return new ChatOpenAI({ model, apiKey, configuration: { baseURL: `${url}/v1` }, timeout, maxRetries: 0 });
}

async function google(baseUrl, timeout) {
  const { GoogleGenAI } = await load("@google/genai");
  return new GoogleGenAI({ apiKey, httpOptions: { baseUrl, timeout } }).models;
}
const toGoogle = { model, contents: "Which city?" };

/** As programs do it by hand: they look at the status, and not into the answer. */
function accepted(status) {
  if (status >= 400) throw new Error(`the model answered with ${status}`);
}

function mcp(transport) {
  return async (url, timeout) => {
    const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
    const client = new Client({ name: "agent", version: "1" });
    await client.connect(await transport(new URL(`${url}/mcp`)), { timeout });
    await client.listTools();
    await client.close();
    return "Rome";
  };
}

const MONGO = ["refused", "DNS", "ending"];
const address = (failure) => (failure === "DNS" ? ["models.invalid", 1] : ["127.0.0.1", ports[failure]]);

const CLIENTS = {
  ...ai("ai-5", 5, "-2"),
  ...ai("ai", 6, ""),
  ...ai("ai-7", 7, "-4"),
  "@mastra/core": ["@mastra/core", WHOLE, async (...given) => (await (await mastra(...given)).generate("Which city?", { modelSettings })).text],
  "@mastra/core, stream": ["@mastra/core", STREAM, async (...given) => (await (await mastra(...given)).stream("Which city?", { modelSettings })).text],
  "@mastra/core, text stream": [
    "@mastra/core",
    TEXT_STREAM,
    async (...given) => textOf((await (await mastra(...given)).stream("Which city?", { modelSettings })).textStream, String),
  ],
  openai: ["openai", WHOLE, async (...given) => (await (await openai(...given)).create({ model, messages })).choices[0].message.content],
  "openai, stream": [
    "openai",
    STREAM,
    async (...given) => textOf(await (await openai(...given)).create({ model, messages, stream: true }), ({ choices }) => choices[0]?.delta.content),
  ],
  "@anthropic-ai/sdk": ["@anthropic-ai/sdk", WHOLE, async (...given) => (await (await anthropic(...given)).create(toAnthropic)).content?.[0].text ?? ""],
  "@anthropic-ai/sdk, stream": [
    "@anthropic-ai/sdk",
    STREAM,
    async (...given) => textOf(await (await anthropic(...given)).create({ ...toAnthropic, stream: true }), ({ delta }) => delta?.text),
  ],
  "@langchain/openai": ["@langchain/openai", WHOLE, async (...given) => (await (await langchain(...given)).invoke("Which city?")).text],
  "@langchain/openai, stream": [
    "@langchain/openai",
    STREAM,
    async (...given) => textOf(await (await langchain(...given)).stream("Which city?"), ({ text }) => text),
  ],
  "@google/genai": ["@google/genai", WHOLE, async (...given) => (await (await google(...given)).generateContent(toGoogle)).text ?? ""],
  "@google/genai, stream": ["@google/genai", STREAM, async (...given) => textOf(await (await google(...given)).generateContentStream(toGoogle), ({ text }) => text)],
  axios: [
    "axios",
    WHOLE,
    async (url, timeout) => {
      const { default: axios } = await load("axios");
      return (await axios.post(`${url}/v1/chat/completions`, { model, messages }, { timeout })).data;
    },
  ],
  "axios, by hand": [
    "axios",
    WHOLE,
    async (url, timeout) => {
      const { default: axios } = await load("axios");
      const { status, data } = await axios.post(`${url}/v1/chat/completions`, { model, messages }, { timeout, validateStatus: () => true });
      accepted(status);
      return data;
    },
  ],
  got: [
    "got",
    WHOLE,
    async (url, request) => {
      const { default: got } = await load("got");
      return got.post(`${url}/v1/chat/completions`, { json: { model, messages }, retry: { limit: 0 }, timeout: { request } }).json();
    },
  ],
  "node-fetch": [
    "node-fetch",
    WHOLE.filter((failure) => failure !== "silent"), // it has no time-out of its own
    async (url) => {
      const { default: fetch } = await load("node-fetch");
      const response = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
      accepted(response.status);
      return response.json();
    },
  ],
  undici: [
    "undici",
    WHOLE,
    async (url, headersTimeout) => {
      const undici = await load("undici");
      const dispatcher = new undici.Agent({ headersTimeout });
      const answer = await undici.request(`${url}/v1/chat/completions`, { method: "POST", headers, body, dispatcher });
      accepted(answer.statusCode);
      return answer.body.json();
    },
  ],
  fetch: [
    null,
    [...EVERY.filter((failure) => failure !== "silent"), "error-body", "error-event"],
    async (url) => {
      const response = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
      accepted(response.status);
      return response.text();
    },
  ],
  "node:http": [
    null,
    WHOLE,
    async (url, timeout) => {
      const request = http.request(`${url}/v1/chat/completions`, { method: "POST", headers, timeout });
      request.on("error", () => {}).on("timeout", () => request.destroy(Object.assign(new Error("too slow"), { code: "ETIMEDOUT" })));
      request.end(body);
      const [response] = await once(request, "response");
      accepted(response.statusCode);
      return textOf(response.setEncoding("utf8"), String);
    },
  ],
  "@aws-sdk/client-bedrock-runtime": [
    "@aws-sdk/client-bedrock-runtime",
    WHOLE.filter((failure) => failure !== "error-body"), // AWS has none
    async (endpoint, requestTimeout) => {
      const { BedrockRuntimeClient, ConverseCommand } = await load("@aws-sdk/client-bedrock-runtime");
      const { NodeHttpHandler } = await load("@smithy/node-http-handler");
      const client = new BedrockRuntimeClient({
        region: "eu-west-1",
        endpoint,
        credentials: { accessKeyId: "a", secretAccessKey: "b" },
        maxAttempts: 1,
        requestHandler: new NodeHttpHandler({ requestTimeout, throwOnRequestTimeout: true }),
      });
      const asked = { modelId: model, messages: [{ role: "user", content: [{ text: "Which city?" }] }] };
      return (await client.send(new ConverseCommand(asked))).output.message.content[0].text;
    },
  ],
  "@grpc/grpc-js": [
    "@grpc/grpc-js",
    ["refused", "reset", "DNS", "silent", "4", "8", "14", "3", "0"],
    async (_url, timeout, failure) => {
      const grpc = await load("@grpc/grpc-js");
      const port = failure === "refused" ? ports.refused : ports.grpc;
      const client = new grpc.Client(failure === "DNS" ? "models.invalid:1" : `127.0.0.1:${port}`, grpc.credentials.createInsecure());
      const same = (bytes) => bytes;
      try {
        await new Promise((resolve, reject) => {
          const options = { deadline: Date.now() + timeout };
          client.makeUnaryRequest(`/s/${failure}`, same, same, Buffer.alloc(0), new grpc.Metadata(), options, (error) => (error ? reject(error) : resolve()));
        });
      } finally {
        client.close();
      }
      return "Rome";
    },
  ],
  "@modelcontextprotocol/sdk": [
    "@modelcontextprotocol/sdk",
    [...STATUSES, "refused", "reset", "DNS", "silent", "400", "ok"],
    mcp(async (url) => new (await load("@modelcontextprotocol/sdk/client/streamableHttp.js")).StreamableHTTPClientTransport(url)),
  ],
  "@modelcontextprotocol/sdk, SSE": [
    "@modelcontextprotocol/sdk",
    [...STATUSES, "refused", "reset", "DNS", "400"],
    mcp(async (url) => new (await load("@modelcontextprotocol/sdk/client/sse.js")).SSEClientTransport(url)),
  ],
  "@modelcontextprotocol/sdk, a process": [
    "@modelcontextprotocol/sdk",
    ["ending"],
    mcp(async () => new (await load("@modelcontextprotocol/sdk/client/stdio.js")).StdioClientTransport({ command: process.execPath, args: ["-e", "0"] })),
  ],
  ioredis: [
    "ioredis",
    MONGO,
    async (_url, _timeout, failure) => {
      const { Redis } = await load("ioredis");
      const [host, port] = address(failure);
      const client = new Redis({ host, port, maxRetriesPerRequest: 1, retryStrategy: () => 10 });
      client.on("error", () => {});
      return client.get("key").finally(() => client.disconnect());
    },
  ],
  mongodb: [
    "mongodb",
    MONGO,
    async (_url, _timeout, failure) => {
      const { MongoClient } = await load("mongodb");
      const client = new MongoClient(`mongodb://${address(failure).join(":")}/?serverSelectionTimeoutMS=300`);
      return client.db("d").collection("c").findOne({}).finally(() => client.close());
    },
  ],
  pg: [
    "pg",
    MONGO,
    async (_url, _timeout, failure) => {
      const { default: pg } = await load("pg");
      const [host, port] = address(failure);
      const client = new pg.Client({ host, port, user: "u", password: "p", database: "d" });
      client.on("error", () => {});
      await client.connect();
      return (await client.query("select 1")).rows;
    },
  ],
  ws: [
    "ws",
    ["refused", "DNS", "refusing", "cut", "1011", "1012", "1013", "1000"],
    async (url) => {
      const { default: WebSocket } = await load("ws");
      const socket = new WebSocket(`${url.replace("http", "ws")}/socket`);
      const texts = [];
      socket.on("message", (data) => texts.push(String(data)));
      await new Promise((resolve, reject) => {
        socket.on("error", reject);
        socket.on("close", (code) => (code === 1000 ? resolve() : reject(new Error(`the socket was closed with ${code}`))));
      });
      return texts.join();
    },
  ],
};

/** What a program without an outage does: each returns its status as a result. */
const HEALTHY = {
  "a retry that succeeds": async (n) => {
    for (let attempt = 0; ; attempt++) {
      const response = await fetch(`${urlOf("once")}/${n}/v1/chat/completions`, { method: "POST", headers, body });
      if (response.ok || attempt === 2) return (await response.json()).choices[0].message.content;
    }
  },
  "a retry with another request": async (n) => {
    const ask = (text) => fetch(`${urlOf("once")}/${n}/v1/chat/completions`, { method: "POST", headers, body: JSON.stringify({ model, messages, text }) });
    await (await ask("long")).text();
    return (await (await ask("short")).json()).choices[0].message.content;
  },
  "a model that stands in for another": async () => {
    const ask = (failure) => fetch(`${urlOf(failure)}/v1/chat/completions`, { method: "POST", headers, body });
    const first = await ask("503").then((response) => (response.ok ? response : ask("ok")));
    return (await first.json()).choices[0].message.content;
  },
  "a tool whose failure is handled": async () => {
    const found = await fetch(`${urlOf("503")}/search`, { method: "POST", headers, body: '{"query": "city"}' });
    const answer = await fetch(`${urlOf("ok")}/v1/chat/completions`, { method: "POST", headers, body });
    return `${found.status} ${(await answer.json()).choices[0].message.content}`;
  },
  "a web site that is away at the end": async () => {
    await fetch(`${urlOf("ok")}/v1/chat/completions`, { method: "POST", headers, body }).then((answer) => answer.text());
    return fetch(`${urlOf("refused")}/page`).catch(() => "");
  },
  "a page that is not found": async () => String((await fetch(`${urlOf("404")}/page`)).status),
  "messages of no model": async () => String((await fetch(`${urlOf("503")}/channels/1/messages`, { method: "POST", headers, body: '{"text": "Hi"}' })).status),
  "a slow stream": async () => textOf((await fetch(`${urlOf("slow")}/v1/chat/completions`, { method: "POST", headers, body: body.replace("{", '{"stream":true,') })).body, String),
  "a stream that is left early": async () => {
    const { body: stream } = await fetch(`${urlOf("slow")}/v1/chat/completions`, { method: "POST", headers, body: body.replace("{", '{"stream":true,') });
    for await (const part of stream) return String(part).slice(0, 5);
  },
  "branches that are cancelled": async () => {
    const controller = new AbortController();
    const hedge = fetch(`${urlOf("silent")}/v1/chat/completions`, { method: "POST", headers, body, signal: controller.signal }).catch(() => {});
    const answer = await fetch(`${urlOf("ok")}/v1/chat/completions`, { method: "POST", headers, body });
    controller.abort();
    await hedge;
    return (await answer.json()).choices[0].message.content;
  },
};

const versionOf = (name) => (name === null ? "of Node.js" : require(join(folder, "node_modules", name, "package.json")).version);

const program = {
  name: "network",
  seedCandidate: { prompt: "Which city?" },
  run: async ({ client, failure, healthy, n }) => {
    if (healthy !== undefined) return HEALTHY[healthy](n);
    if (client !== undefined) return CLIENTS[client][2](urlOf(failure), failure === "silent" ? 2000 : 60_000, failure);
    const about = names.map((name) => [name, { version: versionOf(CLIENTS[name][0]), failures: CLIENTS[name][1] }]);
    return { clients: Object.fromEntries(about), healthy: Object.keys(HEALTHY) };
  },
  score: () => 1,
};
await serveStdio(program, { maxConcurrency: 32 });
