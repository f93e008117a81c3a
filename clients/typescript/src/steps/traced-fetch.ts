/** A `fetch` whose calls of models are steps, for the clients of OpenAI and Anthropic, and others with the same APIs. */

import { tapped } from "../base/streams.js";
import { isObject, jsonIn } from "../base/values.js";
import type { ModelUsage } from "../generated/types.js";
import { isModelRequest } from "../wire/example-calls.js";
import { decodedHeader, requestOf, withBody } from "../wire/watch.js";
import { type Answered, type Asked, ModelCall } from "./model-calls.js";

type Fetch = typeof globalThis.fetch;

/**
 * Return a `fetch` whose calls of models are steps and count as usage of the example that runs: `new OpenAI({ fetch:
 * tracedFetch() })`. It reads chat completions and responses as of OpenAI, and messages as of Anthropic, streamed or not; all
 * else passes through.
 *
 * The step is of the component whose text the system message contains. `fetch`: what sends the requests.
 */
export function tracedFetch(fetch: Fetch = globalThis.fetch): Fetch {
  return async (input, init) => {
    const begun = await beginning(input, init);
    if (begun === undefined) return fetch(input, init);
    const { call, api } = begun;
    const response = await call.run(() => fetch(input, init));
    call.watched?.answered(response.status, decodedHeader(response.headers));
    if (response.ok) return read(response, call, api);
    const name = `HTTP ${response.status}`;
    call.fail(Object.assign(new Error(`the provider answered with ${name}`), { name, status: response.status }));
    return response;
  };
}

async function beginning(...given: Parameters<Fetch>): Promise<{ call: ModelCall; api: ModelApi } | undefined> {
  const { request, url, method, text } = requestOf(...given);
  const { pathname } = new URL(url, "http://relative");
  const api = APIS.find(([path]) => pathname.endsWith(path))?.[1];
  if (api === undefined || method !== "POST") return undefined;
  const body = text ?? (await request?.clone().text());
  if (!body || !isModelRequest(pathname, body)) return undefined;
  const asked = object(jsonIn(body));
  const { model } = asked;
  return typeof model === "string" ? { call: new ModelCall({ model, ...api.asked(asked) }), api } : undefined;
}

async function read(response: Response, call: ModelCall, api: ModelApi): Promise<Response> {
  if (!response.headers.get("content-type")?.includes("text/event-stream") || response.body === null) {
    const answer = await call.run(() => response.clone().text());
    call.watched?.received(answer);
    call.end(answered(api, object(jsonIn(answer))));
    return response;
  }
  const decoder = new TextDecoder();
  let text = "";
  const onPart = (bytes: Uint8Array): void => {
    text += decoder.decode(bytes, { stream: true });
    call.watched?.received(bytes);
  };
  const onEnd = (error?: unknown): void => {
    if (error === undefined) call.end(readEvents(api, text));
    else call.fail(error);
  };
  const body = tapped(response.body as ReadableStream<Uint8Array>, onPart, onEnd, () => {
    call.watched?.broke();
    onEnd();
  });
  return withBody(response, body);
}

type Json = Record<string, unknown>;
/** A message of a streamed chat completion, joined from its parts. */
interface StreamedMessage {
  readonly role: "assistant";
  content: string | null;
  readonly tool_calls: { readonly function: { name: string; arguments: string } }[];
}

/** How an API names the parts of requests and answers. */
interface ModelApi {
  asked(body: Json): Omit<Asked, "model">;
  answered(answer: Json): unknown[];
  /** Return the answer that the events of a stream make together. */
  joined(events: readonly Json[]): Json;
}

const CHAT_COMPLETIONS: ModelApi = {
  asked: ({ messages }) => ({ messages }),
  answered: ({ choices }) => list(choices).map((choice) => choice.message),
  joined: (events) => {
    const messages: StreamedMessage[] = [];
    for (const { index, delta } of events.flatMap(({ choices }) => list(choices))) {
      const { content, tool_calls } = object(delta);
      const message = messages[Number(index ?? 0)] ?? { role: "assistant", content: null, tool_calls: [] };
      messages[Number(index ?? 0)] = message;
      if (typeof content === "string") message.content = `${message.content ?? ""}${content}`;
      for (const { index: place, function: called } of list(tool_calls)) {
        const call = message.tool_calls[Number(place)] ?? { function: { name: "", arguments: "" } };
        message.tool_calls[Number(place)] = call;
        call.function.name += textOf(object(called).name);
        call.function.arguments += textOf(object(called).arguments);
      }
    }
    return {
      choices: messages.map((message) => ({ message })),
      usage: events.findLast(({ usage }) => isObject(usage))?.usage,
    };
  },
};

const RESPONSES: ModelApi = {
  asked: ({ input, instructions }) => ({
    messages: typeof input === "string" ? [{ role: "user", content: input }] : list(input).flatMap(messageOfItem),
    system: instructions ?? undefined,
  }),
  answered: ({ output }) => {
    const items = list(output);
    const texts = items.flatMap(({ type, content }) => (type === "message" ? list(content) : []));
    const calls = items.filter(({ type }) => type === "function_call");
    return [{ role: "assistant", content: texts, tool_calls: calls }];
  },
  joined: (events) => object(events.findLast(({ response }) => isObject(response))?.response),
};

const MESSAGES: ModelApi = {
  asked: ({ messages, system }) => ({ messages, system }),
  answered: ({ content }) => [{ role: "assistant", content: list(content).filter(({ type }) => type !== "thinking") }],
  joined: (events) => {
    const content: Json[] = [];
    let usage: Json = {};
    for (const { type, index, message, content_block, delta, usage: more } of events) {
      if (type === "message_start") usage = object(object(message).usage);
      if (type === "message_delta") usage = { ...usage, ...object(more) };
      if (type === "content_block_start") content[Number(index)] = { ...object(content_block), input: "" };
      const block = content[Number(index)];
      if (type !== "content_block_delta" || block === undefined) continue;
      const { text, partial_json } = object(delta);
      block.text = textOf(block.text) + textOf(text);
      block.input = textOf(block.input) + textOf(partial_json);
    }
    return { content, usage };
  },
};

/** By the end of a URL's path. */
const APIS: readonly (readonly [path: string, api: ModelApi])[] = [
  ["/chat/completions", CHAT_COMPLETIONS],
  ["/responses", RESPONSES],
  ["/messages", MESSAGES],
];

/** Read the server-sent events of a streamed answer. */
function readEvents(api: ModelApi, body: string): Answered {
  const data = body.split(/\r?\n/).filter((line) => line.startsWith("data:"));
  return answered(api, api.joined(list(data.map((line) => jsonIn(line.slice(5))))));
}

function answered(api: ModelApi, answer: Json): Answered {
  const hasUsualPrice = isObject(answer.usage) && !costsMore(answer);
  return { messages: api.answered(answer), usage: hasUsualPrice ? tokensOf(object(answer.usage)) : undefined };
}

/** Whether an answer cost more than its counts show: a priority tier, or searches and other tools of the provider's. */
function costsMore(answer: Json): boolean {
  const usage = object(answer.usage);
  const tools = list(answer.output).filter(({ type }) => String(type).endsWith("_call"));
  const own = tools.some(({ type }) => type !== "function_call" && type !== "custom_tool_call");
  const cited = list(answer.choices).some(({ message }) => list(object(message).annotations).length > 0);
  const searches = Object.values(object(usage.server_tool_use)).some(Boolean);
  return own || cited || searches || answer.service_tier === "priority" || usage.service_tier === "priority";
}

/** The contract's counts of a provider's `usage`; undefined if one is missing, or of audio, which has its own prices. */
function tokensOf(usage: Json): ModelUsage | undefined {
  const input = usage.prompt_tokens ?? usage.input_tokens;
  const output = usage.completion_tokens ?? usage.output_tokens;
  if (!isCount(input) || !isCount(output)) return undefined;
  const details = object(usage.prompt_tokens_details ?? usage.input_tokens_details);
  if (count(details.audio_tokens) + count(object(usage.completion_tokens_details).audio_tokens) > 0) return undefined;
  // Anthropic's input tokens are without those that are read from its cache or written to it.
  const isAnthropic = !["prompt_tokens", "input_tokens_details", "total_tokens"].some((name) => name in usage);
  const [cached, written] = isAnthropic
    ? [count(usage.cache_read_input_tokens), count(usage.cache_creation_input_tokens)]
    : [count(details.cached_tokens), count(details.cache_write_tokens ?? details.cache_creation_tokens)];
  const hour = Math.min(count(object(usage.cache_creation).ephemeral_1h_input_tokens), written);
  return {
    input_tokens: input + (isAnthropic ? cached + written : 0),
    output_tokens: output,
    ...(cached > 0 ? { cached_input_tokens: cached } : {}),
    ...(written > 0 ? { cache_write_tokens: written } : {}),
    ...(hour > 0 ? { cache_write_hour_tokens: hour } : {}),
  };
}

function object(value: unknown): Json {
  return isObject(value) ? value : {};
}

/** The message of an item of a response's input: calls of tools and their results have no role there. */
function messageOfItem(item: Json): Json[] {
  if (item.type === "function_call") return [{ role: "assistant", content: null, tool_calls: [item] }];
  if (item.type === "function_call_output") return [{ role: "tool", content: item.output }];
  return item.type === "reasoning" ? [] : [item];
}

function list(value: unknown): Json[] {
  return (Array.isArray(value) ? value : []).filter(isObject);
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function count(value: unknown): number {
  return typeof value === "number" && value > 0 ? value : 0;
}
