/** Watch the requests of `node:http` and `node:https`, which axios, node-fetch, got and the SDK of AWS send. */

import { builtin } from "../base/runtime.js";
import { headerOf } from "./answer-reader.js";
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
  [watched]?: Call;
}

interface Http {
  ClientRequest?: { prototype: ClientRequest };
  IncomingMessage?: { prototype: IncomingMessage };
}

const watched = Symbol("evolverpc.call");

/** Watch all requests from now on, however their function was imported; none in a runtime without this module. */
export function watchHttp(): void {
  const { ClientRequest: request, IncomingMessage: response } = builtin<Http>("node:http") ?? {};
  if (request === undefined || response === undefined) return;
  for (const name of ["write", "end"]) intercept(request.prototype, name, onSent);
  intercept(request.prototype, "emit", onEvent);
  intercept(request.prototype, "destroy", ({ [watched]: call }, error: unknown) => stop(call, error));
  intercept(response.prototype, "push", ({ [watched]: call, trailers }, part: Uint8Array | string | null) => {
    if (part === null) call?.completed(headerOf(trailers));
    else call?.received(part);
  });
  intercept(response.prototype, "destroy", ({ [watched]: call }, error: unknown) => stop(call, error));
}

function onSent(request: ClientRequest, part: unknown): void {
  if (request[watched] === undefined) request[watched] = begun(request) ?? null;
  request[watched]?.sent(part);
}

function begun(request: ClientRequest): Call | undefined {
  if (request.method === "CONNECT") return undefined; // the way to a host through a proxy
  const { host, path } = addressOf(request);
  return beginCall(host, request.method, path);
}

function onEvent({ [watched]: call }: ClientRequest, event: string, given: unknown, socket: FrameSocket): void {
  if (!call || call.hasEnded) return;
  if (event === "response") {
    const response = given as IncomingMessage;
    response[watched] = call;
    call.answered(response.statusCode, headerOf(response.headers));
  } else if (event === "error") call.broke(given);
  else if (event === "close") call.fail({ reason: "cut off" });
  else if (event === "upgrade") watchWebSocket(call, (given as IncomingMessage).statusCode, socket);
}

/** The client ends a call before its answer has ended: a reset of the connection comes this way too. */
function stop(call: Call | null | undefined, error: unknown): void {
  if (error instanceof Error && isTimeout(error)) call?.fail({ reason: "timed out" }, error);
  else call?.broke(error);
}

/** Of a request through a proxy the path is a whole URL. */
function addressOf(request: ClientRequest): { host: string; path: string } {
  const url = /^\w+:/.test(request.path) && URL.canParse(request.path) ? new URL(request.path) : undefined;
  if (url !== undefined) return { host: url.host, path: url.pathname + url.search };
  const name = String(request.getHeader("host") ?? request.host).toLowerCase();
  const usual = request.protocol === "https:" ? ":443" : ":80";
  return { host: name.endsWith(usual) ? name.slice(0, -usual.length) : name, path: request.path };
}
