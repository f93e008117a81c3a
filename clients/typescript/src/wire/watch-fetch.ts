/** Watch the calls of `fetch` in runtimes whose `fetch` shows nothing of its requests: Bun, Deno, Workers. */

import type { Header } from "./answer-reader.js";
import type { Call } from "./call.js";
import { reasonOf } from "./failures.js";
import { beginCall } from "./place.js";
import { tapped } from "./tapped-stream.js";

type Fetch = typeof globalThis.fetch;

/** Replace the global `fetch` by one that is watched. */
export function watchFetch(): void {
  const { fetch } = globalThis;
  if (typeof fetch === "function") globalThis.fetch = watched(fetch);
}

/** Return a `fetch` that does what the given one does, and whose calls are watched. */
export function watched(fetch: Fetch): Fetch {
  return async (input, init) => {
    const call = begun(input, init);
    if (call === undefined) return fetch(input, init);
    try {
      return watchAnswer(await fetch(input, init), call);
    } catch (error) {
      // Other runtimes have no codes for the errors of the network, but names of their own for those of the program.
      if (error instanceof DOMException || init?.signal?.aborted) call.broke(error);
      else call.fail({ reason: "no connection" }, error);
      throw error;
    }
  };
}

function begun(...[input, init]: Parameters<Fetch>): Call | undefined {
  const request = typeof input === "object" && "url" in input ? input : undefined;
  const url = request?.url ?? String(input);
  if (!URL.canParse(url)) return undefined;
  const { host, pathname, search } = new URL(url);
  const call = beginCall(host, (init?.method ?? request?.method ?? "GET").toUpperCase(), pathname + search);
  if (typeof init?.body === "string") call?.sent(init.body);
  return call;
}

/** Return the same answer, whose body is looked at as it is read. */
function watchAnswer(response: Response, call: Call): Response {
  const { status, statusText, headers, url } = response;
  call.answered(status, decodedHeader(headers));
  if (response.body === null) {
    call.completed();
    return response;
  }
  const body = tapped(
    response.body as ReadableStream<Uint8Array>,
    (part) => call.received(part),
    (error) => {
      if (error === undefined) call.completed();
      else if (error instanceof DOMException) call.broke(error);
      else call.fail({ reason: reasonOf(error) ?? "cut off" }, error);
    },
    () => call.broke(),
  );
  return Object.defineProperty(new Response(body, { status, statusText, headers }), "url", { value: url });
}

/** The headers of an answer, whose body `fetch` has decompressed. */
export function decodedHeader(headers: Headers): Header {
  return (name) => (name === "content-encoding" ? undefined : (headers.get(name) ?? undefined));
}
