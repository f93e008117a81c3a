/** Watch the streams of `node:http2`, over which grpc-js and the SDK of AWS call. */

import { builtin } from "../base/runtime.js";
import { headerOf } from "./answer-reader.js";
import type { Call } from "./call.js";
import { intercept, oncePerPrototype } from "./intercept.js";
import { beginCall } from "./place.js";

interface Http2 {
  connect(authority: unknown, ...given: unknown[]): Session;
}

interface Session {
  request(headers?: Headers, ...given: unknown[]): object;
}

type Headers = Record<string, string | string[] | number | undefined>;

/** Names of the hosts of sessions. */
const hosts = new WeakMap<object, string>();

/** Watch the streams of all sessions from now on; none in a runtime without this module. */
export function watchHttp2(): void {
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
  prototype.request = function (this: Session, headers: Headers = {}, ...given) {
    const stream = request.call(this, headers, ...given);
    const host = String(headers[":authority"] ?? hosts.get(this) ?? "localhost");
    const call = beginCall(host, String(headers[":method"] ?? "GET"), String(headers[":path"] ?? "/"));
    if (call !== undefined) watch(stream, call);
    return stream;
  };
});

function watch(stream: object, call: Call): void {
  let trailers: Headers = {};
  for (const name of ["write", "end"]) intercept(stream, name, (_, part: unknown) => call.sent(part));
  intercept(stream, "push", (_, part: Uint8Array | null) => {
    if (part !== null) call.received(part);
  });
  intercept(stream, "emit", (_, event: string, given: unknown) => {
    if (event === "response") call.answered(Number((given as Headers)[":status"]), headerOf(given));
    else if (event === "trailers") trailers = given as Headers;
    else if (event === "error") call.broke(given);
    else if (event === "end") call.completed(headerOf(trailers));
    else if (event === "close") closed(stream as { rstCode?: number }, call, trailers);
  });
  intercept(stream, "close", () => call.broke());
}

/** Codes with which a host resets a stream that it may serve later: an error of its own, refused, or too many. */
const TRANSIENT_RESETS = new Set([2, 7, 11]);

function closed({ rstCode = 0 }: { rstCode?: number }, call: Call, trailers: Headers): void {
  if (TRANSIENT_RESETS.has(rstCode)) call.fail({ reason: "cut off" });
  else if (rstCode === 0) call.completed(headerOf(trailers));
  else call.broke();
}
