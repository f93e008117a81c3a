/** Watch the requests of undici: of the `fetch` of Node.js, of the package, through any agent or proxy. */

import { read } from "../base/error-values.js";
import { builtin } from "../base/runtime.js";
import { type Header, headerOf } from "./answer-reader.js";
import type { Call } from "./call.js";
import { intercept, oncePerPrototype } from "./intercept.js";
import { beginCall } from "./place.js";
import { type FrameSocket, watchWebSocket } from "./websocket-frames.js";

interface Channels {
  subscribe(name: string, onMessage: (message: { request: UndiciRequest }) => void): void;
}

interface UndiciRequest {
  origin: string | URL;
  method: string;
  path: string;
  [watched]?: Call;
}

const watched = Symbol("evolverpc.call");

/** Watch all requests from now on; in a runtime without undici there are none. */
export function watchUndici(): void {
  builtin<Channels>("node:diagnostics_channel")?.subscribe("undici:request:create", ({ request }) => {
    watchMethods(request);
    const { origin, method, path } = request;
    const call = beginCall(hostOf(origin), method, path);
    if (call !== undefined) request[watched] = call;
  });
}

/** What undici calls on a request as it proceeds; the second names are those of version 8. */
const watchMethods = oncePerPrototype<UndiciRequest>((prototype) => {
  const on = (
    names: readonly string[],
    look: (call: Call, first: never, second: never, third: never) => void,
  ): void => {
    const name = names.find((each) => typeof read(prototype, each) === "function");
    if (name === undefined) return;
    intercept(prototype, name, (request, first, second, third) => {
      const call = request[watched];
      if (call !== undefined && !call.hasEnded) look(call, first, second, third);
    });
  };
  on(["onBodySent"], (call, part: Uint8Array) => call.sent(part));
  on(["onHeaders", "onResponseStart"], (call, status: number, headers: unknown) => {
    call.answered(status, undiciHeader(headers));
  });
  on(["onData", "onResponseData"], (call, part: Uint8Array) => call.received(part));
  on(["onComplete", "onResponseEnd"], (call, trailers: unknown) => call.completed(undiciHeader(trailers)));
  on(["onError", "onResponseError"], (call, error: unknown) => call.broke(error));
  on(["onUpgrade", "onRequestUpgrade"], (call, status: number, _headers: unknown, socket: FrameSocket) =>
    watchWebSocket(call, status, socket),
  );
});

function hostOf(origin: string | URL): string {
  return typeof origin === "string" ? new URL(origin).host : origin.host;
}

/** Headers as undici has them: a list of names and values in turn, of bytes, or an object. */
function undiciHeader(headers: unknown): Header {
  if (!Array.isArray(headers)) return headerOf(headers);
  return (name) => {
    for (let at = 0; at < headers.length; at += 2) {
      const key: Uint8Array | string = headers[at]; // its length alone rules most out
      if (key.length === name.length && String(key).toLowerCase() === name) return String(headers[at + 1]);
    }
    return undefined;
  };
}
