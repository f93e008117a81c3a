/** Watch the requests of `node:http` and `node:https`, which axios, node-fetch, got and the SDK of AWS send. */

import { builtin } from "../base/runtime.js";
import type { Call } from "./call.js";
import { isTimeout } from "./failures.js";
import { intercept } from "./intercept.js";
import { beginCall } from "./place.js";
import { type FrameSocket, watchWebSocket } from "./websocket-frames.js";

interface ClientRequest {
  method: string;
  protocol: string;
  path: string;
  host: string;
  getHeader(name: string): unknown;
  [watched]?: Call | null;
}

interface IncomingMessage {
  statusCode: number;
  headers: Record<string, string | string[] | undefined>;
  trailers: Record<string, string | undefined>;
}

const watched = Symbol("evolverpc.call");

/** Watch all requests from now on, however their function was imported; none in a runtime without this module. */
export function watchHttp(): void {
  const prototype = builtin<{ ClientRequest?: { prototype: object } }>("node:http")?.ClientRequest?.prototype;
  if (prototype === undefined) return;
  for (const name of ["write", "end"]) {
    const method = (prototype as Record<string, (...given: unknown[]) => unknown>)[name];
    if (method === undefined) continue;
    Object.defineProperty(prototype, name, {
      configurable: true,
      writable: true,
      value(this: ClientRequest, ...given: unknown[]) {
        if (this[watched] === undefined) this[watched] = watch(this) ?? null;
        const [part] = given;
        if (typeof part === "string" || part instanceof Uint8Array) this[watched]?.sent(part);
        return method.apply(this, given);
      },
    });
  }
}

function watch(request: ClientRequest): Call | undefined {
  if (request.method === "CONNECT") return undefined; // the way to a host through a proxy
  const { host, path } = addressOf(request);
  const call = beginCall(host, request.method, path);
  if (call === undefined) return undefined;
  intercept(request, "destroy", (error: unknown) => stop(call, error));
  intercept(request, "emit", (event: string, given: unknown, socket: FrameSocket) => {
    if (event === "response") watchResponse(call, given as IncomingMessage);
    else if (event === "error") call.broke(given);
    else if (event === "close" && !call.hasEnded) call.fail({ reason: "cut off" });
    else if (event === "upgrade") {
      call.answered((given as IncomingMessage).statusCode, () => undefined);
      call.completed();
      watchWebSocket(socket, host, path);
    }
  });
  return call;
}

function watchResponse(call: Call, response: IncomingMessage): void {
  const { statusCode, headers } = response;
  call.answered(statusCode, (name) => headers[name]?.toString());
  intercept(response, "push", (part: Uint8Array | string | null) => {
    if (part === null) call.completed((name) => response.trailers[name]);
    else call.received(part);
  });
  intercept(response, "destroy", (error: unknown) => stop(call, error));
}

/** The client ends a call before its answer has ended: a reset of the connection comes this way too. */
function stop(call: Call, error: unknown): void {
  if (error instanceof Error && isTimeout(error)) call.fail({ reason: "timed out" }, error);
  else call.broke(error);
}

/** Of a request through a proxy the path is a whole URL. */
function addressOf(request: ClientRequest): { host: string; path: string } {
  const named = `${request.protocol}//${request.getHeader("host") ?? request.host}`;
  const url = URL.canParse(request.path) ? new URL(request.path) : undefined;
  if (url !== undefined) return { host: url.host, path: url.pathname + url.search };
  return { host: URL.canParse(named) ? new URL(named).host : request.host, path: request.path };
}
