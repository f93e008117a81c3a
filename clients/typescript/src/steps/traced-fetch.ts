/** A `fetch` whose calls of models are steps, for the clients of OpenAI and Anthropic, and others with the same APIs. */

import { isModelRequest } from "../wire/model-requests.js";
import { tapped } from "../wire/tapped-stream.js";
import { decodedHeader } from "../wire/watch-fetch.js";
import { apiOf, type ModelApi, readAnswer, readEvents, readRequest } from "./model-apis.js";
import { ModelCall } from "./model-calls.js";

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

async function beginning(...[input, init]: Parameters<Fetch>): Promise<{ call: ModelCall; api: ModelApi } | undefined> {
  const request = typeof input === "object" && "url" in input ? input : undefined;
  const { pathname } = new URL(request?.url ?? String(input), "http://relative");
  const api = apiOf(pathname);
  if (api === undefined || (init?.method ?? request?.method)?.toUpperCase() !== "POST") return undefined;
  const body = typeof init?.body === "string" ? init.body : await request?.clone().text();
  if (!body || !isModelRequest(pathname, body)) return undefined;
  const asked = readRequest(api, body);
  return asked && { call: new ModelCall(asked), api };
}

async function read(response: Response, call: ModelCall, api: ModelApi): Promise<Response> {
  if (!response.headers.get("content-type")?.includes("text/event-stream") || response.body === null) {
    const answer = await call.run(() => response.clone().text());
    call.watched?.received(answer);
    call.end(readAnswer(api, answer));
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
  const { status, statusText, headers, url } = response;
  return Object.defineProperty(new Response(body, { status, statusText, headers }), "url", { value: url });
}
