/** Watch what the examples of this process do over the network. */

import { builtin, isNode } from "../base/runtime.js";
import { tapped } from "../base/streams.js";
import { read } from "../base/values.js";
import { type Header, headerOf } from "./answer-reader.js";
import type { Call } from "./example-calls.js";
import { isTimeout, reasonOf } from "./failures.js";
import { beginCall } from "./place.js";
import { watchSockets } from "./watch-sockets.js";

let isWatching = false;

/** Begin with that, once in a process. */
export function watchNetwork(): void {
  if (isWatching) return;
  isWatching = true;
  if (!isNode()) {
    watchFetch();
    return;
  }
  watchUndici();
  watchHttp();
  watchHttp2();
  watchSockets();
  // For modules that import `connect` of node:http2 by its name.
  builtin<{ syncBuiltinESMExports?: () => void }>("node:module")?.syncBuiltinESMExports?.();
}

/** Holds the call of a request, and that of its answer. */
const watched = Symbol("evolverpc.call");

interface Channels {
  subscribe(name: string, onMessage: (message: { request: UndiciRequest }) => void): void;
}

interface UndiciRequest {
  origin: string | URL;
  method: string;
  path: string;
  [watched]?: Call;
}

/** Watch all requests from now on; in a runtime without undici there are none. */
function watchUndici(): void {
  builtin<Channels>("node:diagnostics_channel")?.subscribe("undici:request:create", ({ request }) => {
    watchMethods(request);
    const { origin, method, path } = request;
    const call = beginCall(new URL(String(origin)).host, method, path);
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

/** Http2Headers as undici has them: a list of names and values in turn, of bytes, or an object. */
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

/** Watch all requests from now on, however their function was imported; none in a runtime without this module. */
function watchHttp(): void {
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
  if (request[watched] === undefined) request[watched] = begunRequest(request) ?? null;
  request[watched]?.sent(part);
}

function begunRequest(request: ClientRequest): Call | undefined {
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

interface Http2 {
  connect(authority: unknown, ...given: unknown[]): Session;
}

interface Session {
  request(headers?: Http2Headers, ...given: unknown[]): object;
}

type Http2Headers = Record<string, string | string[] | number | undefined>;

/** Names of the hosts of sessions. */
const hosts = new WeakMap<object, string>();

/** Watch the streams of all sessions from now on; none in a runtime without this module. */
function watchHttp2(): void {
  const http2 = builtin<Http2>("node:http2");
  if (http2 === undefined) return;
  const { connect } = http2;
  http2.connect = function (this: unknown, ...given) {
    const session = connect.apply(this, given);
    const [authority] = given;
    if (URL.canParse(String(authority))) hosts.set(session, new URL(String(authority)).host);
    watchRequests(session);
    return session;
  };
}

const watchRequests = oncePerPrototype<Session>((prototype) => {
  const { request } = prototype;
  prototype.request = function (this: Session, headers: Http2Headers = {}, ...given) {
    const stream = request.call(this, headers, ...given);
    const host = String(headers[":authority"] ?? hosts.get(this) ?? "localhost");
    const call = beginCall(host, String(headers[":method"] ?? "GET"), String(headers[":path"] ?? "/"));
    if (call !== undefined) watchStream(stream, call);
    return stream;
  };
});

function watchStream(stream: object, call: Call): void {
  let trailers: Http2Headers = {};
  for (const name of ["write", "end"]) intercept(stream, name, (_, part: unknown) => call.sent(part));
  intercept(stream, "push", (_, part: Uint8Array | null) => {
    if (part !== null) call.received(part);
  });
  intercept(stream, "emit", (_, event: string, given: unknown) => {
    if (event === "response") call.answered(Number((given as Http2Headers)[":status"]), headerOf(given));
    else if (event === "trailers") trailers = given as Http2Headers;
    else if (event === "error") call.broke(given);
    else if (event === "end") call.completed(headerOf(trailers));
    else if (event === "close") closed(stream as { rstCode?: number }, call, trailers);
  });
  intercept(stream, "close", () => call.broke());
}

/** Codes with which a host resets a stream that it may serve later: an error of its own, refused, or too many. */
const TRANSIENT_RESETS = new Set([2, 7, 11]);

function closed({ rstCode = 0 }: { rstCode?: number }, call: Call, trailers: Http2Headers): void {
  if (TRANSIENT_RESETS.has(rstCode)) call.fail({ reason: "cut off" });
  else if (rstCode === 0) call.completed(headerOf(trailers));
  else call.broke();
}

/** Of the connection that a handshake leaves. */
interface FrameSocket {
  emit(event: string, ...given: unknown[]): boolean;
}

const CLOSE = 8;

/** End the handshake, and watch what the host sends; the connection is a call of its own, which has no end but these. */
function watchWebSocket(handshake: Call, status: number, socket: FrameSocket): void {
  handshake.answered(status, () => undefined);
  handshake.completed();
  const call = beginCall(handshake.host, "WEBSOCKET", "");
  if (call === undefined) return;
  const readFrames = closeReader((code) => {
    if (code >= 1011 && code <= 1013) call.fail({ reason: `closed with ${code}`, status: code });
    else call.completed();
  });
  call.answered(101, () => undefined);
  intercept(socket, "emit", (_, event: string, part: Uint8Array) => {
    if (event === "data") readFrames(part);
    else if (event === "end" || event === "error") call.fail({ reason: "closed with 1006", status: 1006 });
  });
  intercept(socket, "destroy", (_, error: unknown) => call.broke(error));
}

/** Return a function that reads what a server sends, in frames that are not masked; `onClose` gets the code of one that closes. */
function closeReader(onClose: (code: number) => void): (part: Uint8Array) => void {
  let head: number[] = [];
  let skip = 0;
  const readByte = (byte: number): void => {
    head.push(byte);
    const [first = 0, short = 0] = head;
    const start = short === 127 ? 10 : short === 126 ? 4 : 2;
    if (head.length < start) return;
    const length = start === 2 ? short : head.slice(2, start).reduce((sum, each) => sum * 256 + each, 0);
    const isClose = (first & 0xf) === CLOSE;
    const codeBytes = isClose && length >= 2 ? 2 : 0;
    if (head.length < start + codeBytes) return;
    const [high = 0, low = 0] = head.slice(start);
    if (isClose) onClose(high * 256 + low);
    skip = length - codeBytes;
    head = [];
  };
  return (part) => {
    for (let at = 0; at < part.length; ) {
      const skipped = Math.min(skip, part.length - at);
      skip -= skipped;
      at += skipped;
      if (at < part.length) readByte(part[at++] as number);
    }
  };
}

type Method = (this: unknown, ...given: unknown[]) => unknown;

/** Call `look` with the receiver and the first arguments of each call of a method of this object, or of those that inherit it. */
function intercept<Target extends object>(
  target: Target,
  name: string,
  look: (receiver: Target, first: never, second: never, third: never) => void,
): void {
  const method = (target as Record<string, unknown>)[name] as Method | undefined;
  if (typeof method !== "function") return;
  const value: Method = function (first, second, third) {
    look(this as Target, first as never, second as never, third as never);
    // biome-ignore lint/complexity/noArguments: a list made for each call costs more than all else here
    return method.apply(this, arguments as never);
  };
  Object.defineProperty(target, name, { value, configurable: true, writable: true, enumerable: false });
}

/** A function that does its work once for each prototype of the objects that it gets. */
function oncePerPrototype<Target extends object>(work: (prototype: Target) => void): (target: Target) => void {
  const done = new WeakSet<object>();
  return (target) => {
    const prototype = Object.getPrototypeOf(target) as Target;
    if (done.has(prototype)) return;
    done.add(prototype);
    work(prototype);
  };
}

type Fetch = typeof globalThis.fetch;

/** Replace the global `fetch` by one that is watched. */
function watchFetch(): void {
  const { fetch } = globalThis;
  if (typeof fetch === "function") globalThis.fetch = watchedFetch(fetch);
}

/** Return a `fetch` that does what the given one does, and whose calls are watched. */
function watchedFetch(fetch: Fetch): Fetch {
  return async (input, init) => {
    const call = begunFetch(input, init);
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

function begunFetch(...given: Parameters<Fetch>): Call | undefined {
  const { url, method, text } = requestOf(...given);
  if (!URL.canParse(url)) return undefined;
  const { host, pathname, search } = new URL(url);
  const call = beginCall(host, method, pathname + search);
  call?.sent(text);
  return call;
}

/** What a call of `fetch` asks for; `text`: the body, if it is given as one. */
export function requestOf(...[input, init]: Parameters<Fetch>) {
  const request = typeof input === "object" && "url" in input ? input : undefined;
  const method = (init?.method ?? request?.method ?? "GET").toUpperCase();
  const text = typeof init?.body === "string" ? init.body : undefined;
  return { request, url: request?.url ?? String(input), method, text };
}

/** Return the same answer, whose body is looked at as it is read. */
function watchAnswer(response: Response, call: Call): Response {
  call.answered(response.status, decodedHeader(response.headers));
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
  return withBody(response, body);
}

/** The same answer, read from another stream. */
export function withBody({ status, statusText, headers, url }: Response, body: ReadableStream<Uint8Array>): Response {
  return Object.defineProperty(new Response(body, { status, statusText, headers }), "url", { value: url });
}

/** The headers of an answer, whose body `fetch` has decompressed. */
export function decodedHeader(headers: Headers): Header {
  return (name) => (name === "content-encoding" ? undefined : (headers.get(name) ?? undefined));
}
