/**
 * Watch the connections of other clients, such as those of databases: a client shares them among examples, so they are of
 * the process, and an error is known to come from one by the package that opened it.
 */

import { builtin } from "../base/runtime.js";
import { read } from "../base/values.js";
import { reasonOf } from "./failures.js";

interface Socket {
  connect(...given: unknown[]): Socket;
  once(event: string, listener: (...given: never[]) => void): Socket;
  readonly errored?: unknown;
  readonly writableEnded: boolean;
}

/** A connection that a host ended, or that could not be made. */
interface LostConnection {
  at: number;
  packages: ReadonlySet<string>;
}

/** By host: the last connection, if it was lost. */
const lost = new Map<string, LostConnection>();

/** Connections of HTTP are watched by their requests. */
const OF_HTTP = /node:_http_|node:internal\/(http2|deps\/undici)|[\\/]undici[\\/]lib[\\/]/;

/** Watch all connections from now on; none in a runtime without this module. */
export function watchSockets(): void {
  const prototype = builtin<{ Socket: { prototype: Socket } }>("node:net")?.Socket?.prototype;
  if (prototype === undefined) return;
  const { connect } = prototype;
  prototype.connect = function (this: Socket, ...given) {
    const stack = stackHere();
    if (!OF_HTTP.test(stack)) watch(this, hostOf(given), packagesIn(stack));
    return connect.apply(this, given);
  };
}

/** Whether the package in whose code an error was made has lost a connection since a time of `performance.now()`. */
export function hasLostConnection(error: object, since: number): boolean {
  if (lost.size === 0) return false;
  const stack = read(error, "stack");
  const [made] = typeof stack === "string" ? packagesIn(/^\s+at .*$/m.exec(stack)?.[0] ?? "") : [];
  return made !== undefined && [...lost.values()].some(({ at, packages }) => at >= since && packages.has(made));
}

function watch(socket: Socket, host: string, packages: ReadonlySet<string>): void {
  let endedByHost = false;
  socket.once("connect", () => lost.delete(host));
  socket.once("end", () => {
    endedByHost = !socket.writableEnded;
  });
  socket.once("close", () => {
    const { errored } = socket;
    if (reasonOf(errored) !== undefined || (endedByHost && !errored))
      lost.set(host, { at: performance.now(), packages });
  });
}

function hostOf([first, second]: unknown[]): string {
  const options: unknown = Array.isArray(first) ? first[0] : first;
  if (typeof options !== "object") return typeof second === "string" ? `${second}:${options}` : `localhost:${options}`;
  const path = read(options, "path");
  return typeof path === "string" ? path : `${read(options, "host") ?? "localhost"}:${read(options, "port")}`;
}

/** The packages of npm in whose files the frames of a stack are. */
function packagesIn(stack: string): ReadonlySet<string> {
  const found = stack.matchAll(/.*[\\/]node_modules[\\/]((?:@[^\\/]+[\\/])?[^\\/]+)/g);
  return new Set([...found].map(([, name]) => name as string));
}

function stackHere(): string {
  const kind = Error as { stackTraceLimit?: number };
  const { stackTraceLimit } = kind;
  kind.stackTraceLimit = 30;
  const { stack = "" } = new Error();
  if (stackTraceLimit !== undefined) kind.stackTraceLimit = stackTraceLimit;
  return stack;
}
