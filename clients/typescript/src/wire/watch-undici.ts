/** Watch the requests of undici: of the `fetch` of Node.js, of the package, through any agent or proxy. */

import { read } from "../base/error-values.js";
import { builtin } from "../base/runtime.js";
import type { Header } from "./answer-reader.js";
import { intercept } from "./intercept.js";
import { beginCall } from "./place.js";
import { type FrameSocket, watchWebSocket } from "./websocket-frames.js";

interface Channels {
  subscribe(name: string, onMessage: (message: { request: UndiciRequest }) => void): void;
}

/** What undici calls on its requests; the second name is that of version 8. */
interface UndiciRequest {
  origin: string | URL;
  method: string;
  path: string;
}

/** Watch all requests from now on; in a runtime without undici there are none. */
export function watchUndici(): void {
  builtin<Channels>("node:diagnostics_channel")?.subscribe("undici:request:create", ({ request }) => watch(request));
}

function watch(request: UndiciRequest): void {
  const { origin, method, path } = request;
  const { host } = new URL(String(origin));
  const call = beginCall(host, method, path);
  if (call === undefined) return;
  const on = (names: readonly string[], look: (...given: never[]) => void): void => {
    const name = names.find((each) => typeof read(request, each) === "function");
    if (name !== undefined) intercept(request, name, look);
  };
  on(["onBodySent"], (part: Uint8Array) => call.sent(part));
  on(["onHeaders", "onResponseStart"], (status: number, headers: unknown) => call.answered(status, headerOf(headers)));
  on(["onData", "onResponseData"], (part: Uint8Array) => call.received(part));
  on(["onComplete", "onResponseEnd"], (trailers: unknown) => call.completed(headerOf(trailers)));
  on(["onError", "onResponseError"], (error: unknown) => call.broke(error));
  on(["onUpgrade", "onRequestUpgrade"], (status: number, _headers: unknown, socket: FrameSocket) => {
    call.answered(status, () => undefined);
    call.completed();
    watchWebSocket(socket, host, path);
  });
}

/** Headers as undici has them: a list of names and values in turn, of bytes, or an object. */
function headerOf(headers: unknown): Header {
  if (!Array.isArray(headers)) {
    return (name) => {
      const value = read(headers, name);
      return value === undefined ? undefined : String(value);
    };
  }
  return (name) => {
    const at = headers.findIndex((each, index) => index % 2 === 0 && String(each).toLowerCase() === name);
    return at === -1 ? undefined : String(headers[at + 1]);
  };
}
