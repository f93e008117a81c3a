// Calls a model or an HTTP server with the client library that each example names, without retries unless the example sets them.
// The first argument is the package, the second the folder in which the libraries are installed.
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , evolverpc, folder] = process.argv;
const require = createRequire(join(folder, "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);

const { serveStdio } = await load(evolverpc);
const { generateText } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { OpenAI } = await load("openai");
const { Anthropic } = await load("@anthropic-ai/sdk");
const { ChatOpenAI } = await load("@langchain/openai");
const { Agent } = await load("@mastra/core/agent");
const undici = await load("undici");

const apiKey = "key";
const messages = [{ role: "user", content: "Hi" }];

/** The AI SDK leaves time-outs to `fetch`. */
function aiModel(baseURL, timeout) {
  const dispatcher = new undici.Agent({ headersTimeout: timeout });
  return createOpenAI({ apiKey, baseURL, fetch: (url, init) => undici.fetch(url, { ...init, dispatcher }) }).chat("model");
}

const calls = {
  ai: ["ai", (url, timeout) => generateText({ model: aiModel(url, timeout), prompt: "Hi", maxRetries: 0 })],
  "ai (one retry)": ["ai", (url, timeout) => generateText({ model: aiModel(url, timeout), prompt: "Hi", maxRetries: 1 })],
  openai: [
    "openai",
    (baseURL, timeout) =>
      new OpenAI({ apiKey, baseURL, timeout, maxRetries: 0 }).chat.completions.create({ model: "model", messages }),
  ],
  "@anthropic-ai/sdk": [
    "@anthropic-ai/sdk",
    (baseURL, timeout) =>
      new Anthropic({ apiKey, baseURL, timeout, maxRetries: 0 }).messages.create({ model: "model", messages, max_tokens: 9 }),
  ],
  "@langchain/openai": [
    "@langchain/openai",
    (baseURL, timeout) =>
      new ChatOpenAI({ model: "model", apiKey, configuration: { baseURL }, timeout, maxRetries: 0 }).invoke("Hi"),
  ],
  "@mastra/core": [
    "@mastra/core",
    (url, timeout) =>
      new Agent({ id: "a", name: "a", instructions: "Answer.", model: aiModel(url, timeout), maxRetries: 0 }).generate("Hi", {
        modelSettings: { maxRetries: 0 },
      }),
  ],
  undici: [
    "undici",
    async (url, timeout) => {
      const dispatcher = new undici.Agent({ headersTimeout: timeout }).compose(undici.interceptors.responseError());
      await undici.request(url, { method: "POST", dispatcher });
    },
  ],
  fetch: [
    null,
    async (url, timeout) => {
      const dispatcher = new undici.Agent({ headersTimeout: timeout });
      const response = await fetch(url, { method: "POST", dispatcher });
      if (!response.ok) throw new Error("the model did not answer", { cause: response });
    },
  ],
};

const versionOf = (name) => (name === null ? "of Node.js" : require(join(folder, "node_modules", name, "package.json")).version);

await serveStdio({
  name: "frameworks",
  seedCandidate: { prompt: "Hi" },
  run: async ({ library, url, timeout }) => {
    if (library === null) return Object.fromEntries(Object.entries(calls).map(([key, [name]]) => [key, versionOf(name)]));
    await calls[library][1](url, timeout * 1000);
    return "answered";
  },
  score: () => 1,
});
