// Asks a model for each example with the library that it names, so that its calls are steps. No tracer provider is set.
// The first argument is the package, the second the folder in which the libraries are installed.
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , evolverpc, folder] = process.argv;
const require = createRequire(join(folder, "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);

const { serveStdio, tracedFetch } = await load(evolverpc);
const { traced } = await load(join(dirname(evolverpc), "steps", "ai-sdk.js"));
const { createOpenAI } = await load("@ai-sdk/openai");
const { createOpenAI: createOpenAI4 } = await load("@ai-sdk/openai-4");
const { OpenTelemetry } = await load("@ai-sdk/otel");
const { default: Anthropic } = await load("@anthropic-ai/sdk");
const { LangChainInstrumentation } = await load("@arizeai/openinference-instrumentation-langchain");
const { OpenAIInstrumentation } = await load("@arizeai/openinference-instrumentation-openai");
const callbackManager = await load("@langchain/core/callbacks/manager");
const { ChatPromptTemplate } = await load("@langchain/core/prompts");
const { tool: langchainTool } = await load("@langchain/core/tools");
const { createReactAgent } = await load("@langchain/langgraph/prebuilt");
const { ChatOpenAI } = await load("@langchain/openai");
const { Mastra } = await load("@mastra/core");
const { Agent } = await load("@mastra/core/agent");
const { createTool } = await load("@mastra/core/tools");
const { Observability } = await load("@mastra/observability");
const { OtelBridge } = await load("@mastra/otel-bridge");
const { generateText, stepCountIs, streamText, tool } = await load("ai");
const ai7 = await load("ai-7");
const { default: OpenAI } = await load("openai");
const { z } = await load("zod");

const apiKey = "none";
const baseURL = process.env.PROVIDER_URL;
const ASKED = [{ role: "user", content: "Rome?" }];
const WEATHER = { description: "The weather", inputSchema: z.object({ city: z.string() }) };


const fetch = tracedFetch();
const messages = (content) => [{ role: "system", content }, ...ASKED];

const withTools = async (instructions, model = createOpenAI4({ apiKey, baseURL }).chat("gpt-4o-mini")) => {
  const tools = { weather: ai7.tool({ ...WEATHER, execute: () => "sunny" }) };
  await ai7.generateText({ model, instructions, prompt: "Rome?", tools, stopWhen: ai7.isStepCount(2) });
};

const libraries = {
  "ai 7 by itself": (instructions) => withTools(instructions),
  "ai by hand": async (system) => {
    const model = traced(createOpenAI({ apiKey, baseURL }).chat("gpt-4o-mini"));
    await generateText({ model, system, prompt: "Rome?" });
    const { textStream } = streamText({ model, system, prompt: "Rome?" });
    for await (const _ of textStream);
  },
  "ai 7 by hand": (instructions) => withTools(instructions, traced(createOpenAI4({ apiKey, baseURL, fetch }).chat("gpt-4o-mini"))),
  "@anthropic-ai/sdk by hand": async (system) => {
    const client = new Anthropic({ apiKey, baseURL: baseURL.replace(/\/v1$/, ""), fetch });
    await client.messages.create({ model: "claude", max_tokens: 99, system, messages: ASKED });
  },
  "@langchain/openai by hand": async (content) => {
    await new ChatOpenAI({ model: "gpt-4o-mini", apiKey, configuration: { baseURL, fetch } }).invoke(messages(content));
  },
  "@mastra/core by hand": async (instructions) => {
    const model = traced(createOpenAI({ apiKey, baseURL }).chat("gpt-4o-mini"));
    await new Agent({ id: "guide", name: "guide", instructions, model }).generate("Rome?");
  },
  "openai by hand": async (content) => {
    const client = new OpenAI({ apiKey, baseURL, fetch });
    await client.chat.completions.create({ model: "gpt-4o-mini", messages: messages(content) });
  },
  ai: async (system) => {
    const model = createOpenAI({ apiKey, baseURL }).chat("gpt-4o-mini");
    const tools = { weather: tool({ ...WEATHER, execute: () => "sunny" }) };
    const experimental_telemetry = { isEnabled: true };
    await generateText({ model, system, prompt: "Rome?", tools, stopWhen: stepCountIs(2), experimental_telemetry });
  },
  "ai 7": async (instructions) => {
    ai7.registerTelemetry(new OpenTelemetry()); // after the calls without it
    await withTools(instructions);
  },
  "@anthropic-ai/sdk": async (system) => {
    const openTelemetry = { traces: { contentMode: "content" } };
    const client = new Anthropic({ apiKey, baseURL: baseURL.replace(/\/v1$/, ""), openTelemetry });
    await client.messages.create({ model: "claude", max_tokens: 99, system, messages: ASKED });
  },
  "@langchain/core": async (system) => {
    new LangChainInstrumentation().manuallyInstrument(callbackManager); // after the calls by hand, and for LangGraph too
    const prompt = ChatPromptTemplate.fromMessages([["system", system], ["user", "{question}"]]);
    await prompt.pipe(new ChatOpenAI({ model: "gpt-4o-mini", apiKey, configuration: { baseURL } })).invoke({ question: "Rome?" });
  },
  "@langchain/langgraph": async (prompt) => {
    const llm = new ChatOpenAI({ model: "gpt-4o-mini", apiKey, configuration: { baseURL } });
    const { inputSchema: schema, description } = WEATHER;
    const tools = [langchainTool(() => "sunny", { name: "weather", schema, description })];
    await createReactAgent({ llm, tools, prompt }).invoke({ messages: ASKED });
  },
  "@mastra/core": async (instructions) => {
    const model = createOpenAI({ apiKey, baseURL }).chat("gpt-4o-mini");
    const weather = createTool({ id: "weather", ...WEATHER, execute: async () => "sunny" });
    const agent = new Agent({ id: "guide", name: "guide", instructions, model, tools: { weather } });
    const configs = { default: { serviceName: "guide", bridge: new OtelBridge() } };
    new Mastra({ agents: { agent }, logger: false, observability: new Observability({ configs }) });
    await agent.generate("Rome?");
  },
  openai: async (content) => {
    new OpenAIInstrumentation().manuallyInstrument(OpenAI); // LangChain uses this package too
    await new OpenAI({ apiKey, baseURL }).chat.completions.create({ model: "gpt-4o-mini", messages: messages(content) });
  },
};

const versionOf = (name) => require(join(folder, "node_modules", name.replace(/ by .*/, "").replace(" ", "-"), "package.json")).version;

await serveStdio({
  name: "traced",
  seedCandidate: Object.fromEntries(Object.keys(libraries).map((name) => [name, `Answer with the library ${name}.`])),
  run: async ({ library }, candidate) => {
    if (library === null) return Object.fromEntries(Object.keys(libraries).map((name) => [name, versionOf(name)]));
    await libraries[library](candidate[library]);
    return "answered";
  },
  score: () => 1,
});
