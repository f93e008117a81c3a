/** A `fetch` whose calls of models are steps, for the clients of OpenAI and Anthropic, and others with the same APIs. */

import type { ModelUsage } from "./generated/types.js";
import { type Answered, type Asked, ModelCall, tapped, useModelCalls } from "./model-calls.js";
import { isObject } from "./values.js";

type Fetch = typeof globalThis.fetch;
type Json = Record<string, unknown>;

/** What one of the APIs calls its parts. */
interface Api {
  asked(body: Json): Omit<Asked, "model">;
  answered(answer: Json): unknown[];
  /** Make of the events of a stream the answer that would have come at once. */
  joined(events: readonly Json[]): Json;
}

const CHAT_COMPLETIONS: Api = {
  asked: ({ messages }) => ({ messages }),
  answered: ({ choices }) => list(choices).map((choice) => choice.message),
  joined: (events) => {
    const message: Json = { role: "assistant", content: null, tool_calls: [] };
    const calls = message.tool_calls as { function: { name: string; arguments: string } }[];
    for (const { choices } of events) {
      const [first] = list(choices);
      const { content, tool_calls } = object(first?.delta);
      if (typeof content === "string") message.content = `${message.content ?? ""}${content}`;
      for (const { index, function: called } of list(tool_calls)) {
        const call = calls[Number(index)] ?? { function: { name: "", arguments: "" } };
        calls[Number(index)] = call;
        call.function.name += textOf(object(called).name);
        call.function.arguments += textOf(object(called).arguments);
      }
    }
    return { choices: [{ message }], usage: events.findLast(({ usage }) => isObject(usage))?.usage };
  },
};

const RESPONSES: Api = {
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

const MESSAGES: Api = {
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

const APIS: readonly (readonly [path: string, api: Api])[] = [
  ["/chat/completions", CHAT_COMPLETIONS],
  ["/responses", RESPONSES],
  ["/messages", MESSAGES],
];

/**
 * Return a `fetch` whose calls of models are steps and count as usage of the example that runs: `new OpenAI({ fetch:
 * tracedFetch() })`. It reads chat completions and responses as of OpenAI, and messages as of Anthropic, streamed or not; all
 * else passes through.
 *
 * The step is of the component whose text the system message contains. `fetch`: what sends the requests.
 */
export function tracedFetch(fetch: Fetch = globalThis.fetch): Fetch {
  useModelCalls();
  return async (input, init) => {
    const begun = await beginning(input, init);
    if (begun === undefined) return fetch(input, init);
    const { call, api } = begun;
    let response: Response;
    try {
      response = await call.run(() => fetch(input, init));
    } catch (error) {
      call.fail(error);
      throw error;
    }
    if (response.ok) return read(response, call, api);
    const name = `HTTP ${response.status}`;
    call.fail(Object.assign(new Error(`the provider answered with ${name}`), { name }));
    return response;
  };
}

async function beginning(...[input, init]: Parameters<Fetch>): Promise<{ call: ModelCall; api: Api } | undefined> {
  const request = typeof input === "object" && "url" in input ? input : undefined;
  const { pathname } = new URL(request?.url ?? String(input), "http://relative");
  const api = APIS.find(([path]) => pathname.endsWith(path))?.[1];
  if (api === undefined || (init?.method ?? request?.method)?.toUpperCase() !== "POST") return undefined;
  const body = parsed(typeof init?.body === "string" ? init.body : await request?.clone().text());
  if (body === undefined || typeof body.model !== "string") return undefined;
  return { call: new ModelCall({ model: body.model, ...api.asked(body) }), api };
}

async function read(response: Response, call: ModelCall, api: Api): Promise<Response> {
  const end = (answer: Json): void => call.end(answeredBy(api, answer));
  if (!response.headers.get("content-type")?.includes("text/event-stream") || response.body === null) {
    end(parsed(await response.clone().text()) ?? {});
    return response;
  }
  const decoder = new TextDecoder();
  let text = "";
  const onPart = (bytes: Uint8Array): void => {
    text += decoder.decode(bytes, { stream: true });
  };
  const body = tapped(response.body as ReadableStream<Uint8Array>, onPart, (error) => {
    if (error === undefined) end(api.joined(eventsOf(text)));
    else call.fail(error);
  });
  const { status, statusText, headers, url } = response;
  return Object.defineProperty(new Response(body, { status, statusText, headers }), "url", { value: url });
}

function answeredBy(api: Api, answer: Json): Answered {
  return { messages: api.answered(answer), usage: isObject(answer.usage) ? tokensOf(answer.usage) : undefined };
}

/** The data of server-sent events that are JSON objects. */
function eventsOf(text: string): Json[] {
  return text.split(/\r?\n/).flatMap<Json>((line) => (line.startsWith("data:") ? (parsed(line.slice(5)) ?? []) : []));
}

/** The contract's counts of a provider's `usage`; undefined if it has none, or of audio, which has prices of its own. */
function tokensOf(usage: Json): ModelUsage | undefined {
  const isChat = "prompt_tokens" in usage;
  const input = isChat ? usage.prompt_tokens : usage.input_tokens;
  if (typeof input !== "number") return undefined;
  const details = object(isChat ? usage.prompt_tokens_details : usage.input_tokens_details);
  if (count(details.audio_tokens) + count(object(usage.completion_tokens_details).audio_tokens) > 0) return undefined;
  const output = count(isChat ? usage.completion_tokens : usage.output_tokens);
  // Anthropic counts what is read from its cache and written to it apart.
  const isApart = !isChat && !("input_tokens_details" in usage || "total_tokens" in usage);
  const cached = count(isApart ? usage.cache_read_input_tokens : details.cached_tokens);
  const written = count(
    isApart ? usage.cache_creation_input_tokens : (details.cache_write_tokens ?? details.cache_creation_tokens),
  );
  return {
    input_tokens: input + (isApart ? cached + written : 0),
    output_tokens: output,
    ...(cached > 0 ? { cached_input_tokens: cached } : {}),
    ...(written > 0 ? { cache_write_tokens: written } : {}),
  };
}

function parsed(text: string | undefined): Json | undefined {
  try {
    const value: unknown = JSON.parse(text ?? "");
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
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

function count(value: unknown): number {
  return typeof value === "number" && value > 0 ? value : 0;
}
