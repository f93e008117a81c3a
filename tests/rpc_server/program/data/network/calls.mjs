// Calls a URL, which stands for a failure, by the client that each example names, or a host as a healthy program would.
// No client retries a call.
// The first argument is the package, the second the folder in which the libraries are installed, the others are the clients.
import { once } from "node:events";
import http from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { grpcAddress } from "./grpc_host.mjs";

const [, , evolverpc, folder, ...names] = process.argv;
const require = createRequire(join(folder, "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { serveStdio } = await load(evolverpc);

const apiKey = "key";
const model = "m";
const messages = [{ role: "user", content: "Which city?" }];
const body = JSON.stringify({ model, messages });
const headers = { "content-type": "application/json" };

/** Ask a model at a URL by `fetch`. */
const ask = (url, more) => fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body, ...more });
const STREAM = { body: JSON.stringify({ model, messages, stream: true }) };

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
    [`ai ${major}`]: [name, async (...given) => (await (await sdk()).generateText(await asked(...given))).text],
    [`ai ${major}, stream`]: [name, async (...given) => await (await sdk()).streamText(await asked(...given)).text],
    [`ai ${major}, text stream`]: [name, async (...given) => textOf((await sdk()).streamText(await asked(...given)).textStream, String)],
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
    await client.connect(await transport(`${url}/mcp`), { timeout });
    await client.listTools();
    await client.close();
    return "Rome";
  };
}

function address(url) {
  const { hostname, port } = new URL(url);
  return [hostname, Number(port) || 1];
}

const CLIENTS = {
  ...ai("ai-5", 5, "-2"),
  ...ai("ai", 6, ""),
  ...ai("ai-7", 7, "-4"),
  "@mastra/core": ["@mastra/core", async (...given) => (await (await mastra(...given)).generate("Which city?", { modelSettings })).text],
  "@mastra/core, stream": ["@mastra/core", async (...given) => (await (await mastra(...given)).stream("Which city?", { modelSettings })).text],
  "@mastra/core, text stream": [
    "@mastra/core",
    async (...given) => textOf((await (await mastra(...given)).stream("Which city?", { modelSettings })).textStream, String),
  ],
  openai: ["openai", async (...given) => (await (await openai(...given)).create({ model, messages })).choices[0].message.content],
  "openai, stream": [
    "openai",
    async (...given) => textOf(await (await openai(...given)).create({ model, messages, stream: true }), ({ choices }) => choices[0]?.delta.content),
  ],
  "@anthropic-ai/sdk": ["@anthropic-ai/sdk", async (...given) => (await (await anthropic(...given)).create(toAnthropic)).content?.[0].text ?? ""],
  "@anthropic-ai/sdk, stream": [
    "@anthropic-ai/sdk",
    async (...given) => textOf(await (await anthropic(...given)).create({ ...toAnthropic, stream: true }), ({ delta }) => delta?.text),
  ],
  "@langchain/openai": ["@langchain/openai", async (...given) => (await (await langchain(...given)).invoke("Which city?")).text],
  "@langchain/openai, stream": [
    "@langchain/openai",
    async (...given) => textOf(await (await langchain(...given)).stream("Which city?"), ({ text }) => text),
  ],
  "@google/genai": ["@google/genai", async (...given) => (await (await google(...given)).generateContent(toGoogle)).text ?? ""],
  "@google/genai, stream": ["@google/genai", async (...given) => textOf(await (await google(...given)).generateContentStream(toGoogle), ({ text }) => text)],
  axios: [
    "axios",
    async (url, timeout) => {
      const { default: axios } = await load("axios");
      return (await axios.post(`${url}/v1/chat/completions`, { model, messages }, { timeout })).data;
    },
  ],
  "axios, by hand": [
    "axios",
    async (url, timeout) => {
      const { default: axios } = await load("axios");
      const { status, data } = await axios.post(`${url}/v1/chat/completions`, { model, messages }, { timeout, validateStatus: () => true });
      accepted(status);
      return data;
    },
  ],
  got: [
    "got",
    async (url, request) => {
      const { default: got } = await load("got");
      return got.post(`${url}/v1/chat/completions`, { json: { model, messages }, retry: { limit: 0 }, timeout: { request } }).json();
    },
  ],
  "node-fetch": [
    "node-fetch",
    async (url) => {
      const { default: fetch } = await load("node-fetch");
      const response = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
      accepted(response.status);
      return response.json();
    },
  ],
  undici: [
    "undici",
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
    async (url) => {
      const response = await ask(url);
      accepted(response.status);
      return response.text();
    },
  ],
  "node:http": [
    null,
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
    async (url, timeout) => {
      const grpc = await load("@grpc/grpc-js");
      const client = new grpc.Client(url.includes("://") ? address(url).join(":") : grpcAddress, grpc.credentials.createInsecure());
      const same = (bytes) => bytes;
      try {
        await new Promise((resolve, reject) => {
          const options = { deadline: Date.now() + timeout };
          client.makeUnaryRequest(`/s/${encodeURIComponent(url)}`, same, same, Buffer.alloc(0), new grpc.Metadata(), options, (error) => (error ? reject(error) : resolve()));
        });
      } finally {
        client.close();
      }
      return "Rome";
    },
  ],
  "@modelcontextprotocol/sdk": [
    "@modelcontextprotocol/sdk",
    mcp(async (url) => new (await load("@modelcontextprotocol/sdk/client/streamableHttp.js")).StreamableHTTPClientTransport(new URL(url))),
  ],
  "@modelcontextprotocol/sdk, SSE": [
    "@modelcontextprotocol/sdk",
    mcp(async (url) => new (await load("@modelcontextprotocol/sdk/client/sse.js")).SSEClientTransport(new URL(url))),
  ],
  "@modelcontextprotocol/sdk, a process": [
    "@modelcontextprotocol/sdk",
    mcp(async () => new (await load("@modelcontextprotocol/sdk/client/stdio.js")).StdioClientTransport({ command: process.execPath, args: ["-e", "0"] })),
  ],
  ioredis: [
    "ioredis",
    async (url) => {
      const { Redis } = await load("ioredis");
      const [host, port] = address(url);
      const client = new Redis({ host, port, maxRetriesPerRequest: 1, retryStrategy: () => 10 });
      client.on("error", () => {});
      return client.get("key").finally(() => client.disconnect());
    },
  ],
  mongodb: [
    "mongodb",
    async (url) => {
      const { MongoClient } = await load("mongodb");
      const client = new MongoClient(`mongodb://${address(url).join(":")}/?serverSelectionTimeoutMS=300`);
      return client.db("d").collection("c").findOne({}).finally(() => client.close());
    },
  ],
  pg: [
    "pg",
    async (url) => {
      const { default: pg } = await load("pg");
      const [host, port] = address(url);
      const client = new pg.Client({ host, port, user: "u", password: "p", database: "d" });
      client.on("error", () => {});
      await client.connect();
      return (await client.query("select 1")).rows;
    },
  ],
  ws: [
    "ws",
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

const answerOf = async (response) => (await response.json()).choices[0].message.content;

/** Programs whose calls succeed, or fail in a way that they deal with: each is scored. */
const HEALTHY = {
  "a retry that succeeds": async (host, n) => {
    for (let attempt = 0; ; attempt++) {
      const response = await ask(`${host}/503x1-${n}`);
      if (response.ok || attempt === 2) return answerOf(response);
    }
  },
  "a retry with another request": async (host, n) => {
    await (await ask(`${host}/503x1-${n}`)).text();
    return answerOf(await ask(`${host}/503x1-${n}`, { body: JSON.stringify({ model, messages, text: "short" }) }));
  },
  "a retry before the failed stream has ended": async (host, n) => {
    const failed = (await ask(`${host}/late-endx1-${n}`, STREAM)).body.getReader();
    for (let text = ""; !text.includes("slow down"); ) text += Buffer.from((await failed.read()).value);
    return answerOf(await ask(`${host}/late-endx1-${n}`));
  },
  "a model that stands in for another": async (host) => {
    const first = await ask(`${host}/503`);
    return answerOf(first.ok ? first : await ask(`${host}/ok`));
  },
  "a tool whose failure is handled": async (host) => {
    const found = await fetch(`${host}/503/search`, { method: "POST", headers, body: '{"query": "city"}' });
    return `${found.status} ${await answerOf(await ask(`${host}/ok`))}`;
  },
  "a web site that is away at the end": async (host) => {
    await answerOf(await ask(`${host}/ok`));
    return fetch("http://127.0.0.1:9/page").catch(() => "");
  },
  "a page that is not found": async (host) => String((await fetch(`${host}/404/page`)).status),
  "messages of no model": async (host) => String((await fetch(`${host}/503/channels/1/messages`, { method: "POST", headers, body: '{"text": "Hi"}' })).status),
  "a slow stream": async (host) => textOf((await ask(`${host}/slow`, STREAM)).body, String),
  "a stream that is left early": async (host) => {
    for await (const part of (await ask(`${host}/slow`, STREAM)).body) return String(part).slice(0, 5);
  },
  "branches that are cancelled": async (host) => {
    const controller = new AbortController();
    const hedge = ask(`${host}/hang`, { signal: controller.signal }).catch(() => {});
    const answer = await ask(`${host}/ok`);
    controller.abort();
    await hedge;
    return answerOf(answer);
  },
};

const versionOf = (name) => (name === null ? "of Node.js" : require(join(folder, "node_modules", name, "package.json")).version);

const program = {
  name: "network",
  seedCandidate: { prompt: "Which city?" },
  run: async ({ client, failure, url, healthy, host, n }) => {
    if (healthy !== undefined) return HEALTHY[healthy](host, n);
    if (client !== undefined) return CLIENTS[client][1](url, ["hang", "silent stream"].includes(failure) ? 2000 : 60_000);
    return { versions: Object.fromEntries(names.map((name) => [name, versionOf(CLIENTS[name][0])])), healthy: Object.keys(HEALTHY) };
  },
  score: () => 1,
};
await serveStdio(program, { concurrency: 32 });
