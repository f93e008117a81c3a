/** Listen on Node's own HTTP server; bodies are bounded while they arrive, and not read if they are not needed. */

import { readFileSync, readlinkSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { finished } from "node:stream/promises";
import { setTimeout as delay } from "node:timers/promises";
import { bracketed } from "../base/access.js";
import { Cancellation } from "../base/cancellation.js";
import { anyOf, type ReadBy, SetupError, wholeNumber } from "../base/configuration.js";
import type { HttpRouter } from "./handler.js";

/** As it is before a program replaces it, which a polyfill may do. */
const { Request } = globalThis;

/** How long a client may continue to send a body that is dropped, so that it reads its response. */
const LINGER_MS = 1000;
/** A body up to this size is read and dropped to keep the connection. */
const SMALL_BODY = 64 * 1024;
/** How long a connection may be silent between requests, before its first, and in the middle of one. */
const SILENCE_MS = 75_000;

/**
 * Listen at an address. Rejects with `SetupError` if that fails.
 *
 * Only receiving a request has a time limit, never answering it.
 */
export async function listen(router: HttpRouter, address: ListenAddress, silenceMs = SILENCE_MS): Promise<Server> {
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    // Until the body has arrived or is answered unread, a socket that is silent for this long is destroyed.
    request.socket.setTimeout(silenceMs);
    request.once("end", () => {
      if (!response.writableEnded) request.socket.setTimeout(0);
    });
    answer(router, request, response).catch((error: unknown) => {
      if (!request.destroyed) console.error("evolverpc: unexpected error", error);
      response.destroy();
    });
  };
  const bounds = {
    keepAliveTimeout: silenceMs,
    headersTimeout: silenceMs,
    // A large body on a slow connection needs time.
    requestTimeout: 4 * silenceMs,
    connectionsCheckingInterval: silenceMs / 10,
  };
  const server = createServer(bounds, onRequest);
  // Without this Node sends 100-continue for every body, needed or not.
  server.on("checkContinue", onRequest);
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) => reject(cannotListen(error, address)));
    if (address.descriptor === undefined) server.listen(address.port, address.host, resolve);
    else server.listen({ fd: address.descriptor }, resolve);
  });
  return server;
}

function cannotListen(error: NodeJS.ErrnoException, { host, port, descriptor }: ListenAddress): SetupError {
  if (descriptor !== undefined) {
    return new SetupError(`cannot listen on descriptor ${descriptor} of GEPA_LISTEN: ${error.message}`);
  }
  const reason =
    error.code === "EADDRINUSE"
      ? "the port is in use, perhaps by a server that you started before: end it, or choose another port, or none for a free one"
      : error.message;
  return new SetupError(`cannot listen on ${host}, port ${port}: ${reason}`);
}

async function answer(router: HttpRouter, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const closed = new Cancellation();
  response.on("close", () => closed.cancel());
  // A repeated header counts as neither value: `request.headers` would take the first `Host` and drop the second.
  const host = request.headersDistinct.host?.join(", ") ?? null;
  const reply = await router.answer(toRequest(request, response), host, closed);
  if (!response.destroyed) await send(request, response, reply);
}

function toRequest(request: IncomingMessage, response: ServerResponse): Request {
  const { method = "", headersDistinct, url = "" } = request;
  const headers = Object.entries(headersDistinct).map(([name, values = []]): [string, string] => {
    return [name, values.join(", ")];
  });
  return new Request(`http://localhost${pathOfTarget(url)}`, {
    method: method === "TRACE" ? "PUT" : method, // refused as well, and a `Request` can have it
    headers,
    ...(method === "POST" && { body: bodyOf(request, response), duplex: "half" }),
  });
}

/** The path of a request target, which may be a whole URL: `http://localhost/rpc?x` is at `/rpc`. */
function pathOfTarget(target: string): string {
  const path = target.replace(/^https?:\/\/[^/?]*/i, "").split("?", 1)[0] ?? "";
  return path.startsWith("/") ? path : "/";
}

/** The body, of which nothing is asked for or kept before it is read. */
function bodyOf(request: IncomingMessage, response: ServerResponse): ReadableStream<Uint8Array> {
  const read = (controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> => {
    if (request.headers.expect?.toLowerCase() === "100-continue") response.writeContinue();
    return new Promise((resolve, reject) => {
      request.on("data", (chunk: Buffer) => controller.enqueue(chunk));
      request.on("end", () => resolve(controller.close()));
      request.on("error", reject);
    });
  };
  const cancel = (): void => {
    request.pause();
    request.removeAllListeners("data");
  };
  return new ReadableStream({ pull: read, cancel }, { highWaterMark: 0 });
}

async function send(request: IncomingMessage, response: ServerResponse, reply: Response): Promise<void> {
  const body = reply.body === null ? undefined : Buffer.from(await reply.arrayBuffer());
  const unread = !request.readableEnded && !request.complete && !isSmall(request);
  response.writeHead(reply.status, {
    ...Object.fromEntries(reply.headers),
    ...(body === undefined ? {} : { "content-length": body.length }),
    ...(unread ? { connection: "close" } : {}),
  });
  if (unread) {
    // Closing at once would reset the connection under a client that is still sending, before it reads the answer.
    response.write(body ?? "");
    request.resume(); // drops what still arrives
    await Promise.race([finished(request).catch(() => {}), delay(LINGER_MS, undefined, { ref: false })]);
    response.end();
    request.destroy();
  } else {
    response.end(body);
  }
}

function isSmall({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] === undefined && Number(headers["content-length"] ?? 0) <= SMALL_BODY;
}

const LOOPBACK = "127.0.0.1";

export interface ListenAddress {
  /** The address to bind; for an inherited socket `localhost`, as its own address is known only when it listens. */
  host: string;
  port: number;
  /** An inherited socket that listens already. */
  descriptor?: number;
  /** Further `Host` names to accept. */
  allowedHosts: readonly string[];
}

/** The options that determine the listen address. */
export const LISTEN_OPTIONS = {
  /**
   * The address to bind; default 127.0.0.1. An address other than loopback needs a given token.
   *
   * If the environment variable `GEPA_LISTEN` gives the listen address (`fd:3`, an inherited listening socket, or
   * `HOST:PORT`), neither this nor `port` may be given.
   */
  host: anyOf<string | undefined>(undefined),
  /** Default 0: the system chooses a free port. */
  port: (given: number | undefined, name: string) =>
    given === undefined ? given : wholeNumber(0, 0, 65_535)(given, name),
  /** Further `Host` names to accept, besides those of `GEPA_ALLOWED_HOSTS`. */
  allowedHosts: anyOf<readonly string[]>([]),
};

/** Read the options and the environment variables, which are removed. Throws `SetupError` if they contradict each other. */
export function listenAddressOf(options: Partial<ReadBy<typeof LISTEN_OPTIONS>>): ListenAddress {
  const { GEPA_LISTEN: where, GEPA_ALLOWED_HOSTS: hosts = "" } = process.env;
  // The program and its children must not see them.
  delete process.env.GEPA_LISTEN;
  delete process.env.GEPA_ALLOWED_HOSTS;
  const further = hosts.split(",").map((host) => host.trim());
  const allowedHosts = [...(options.allowedHosts ?? []), ...further.filter((host) => host !== "")];
  if (where === undefined) {
    return { host: options.host ?? LOOPBACK, port: options.port ?? 0, allowedHosts };
  }
  if (options.host !== undefined || options.port !== undefined) {
    throw new SetupError("GEPA_LISTEN is set, and `host` or `port` is given: remove one of them");
  }
  const inherited = /^fd:(\d{1,9})$/.exec(where)?.[1];
  if (inherited !== undefined) return { host: "localhost", port: 0, descriptor: Number(inherited), allowedHosts };
  const [, bracket, plain, digits] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(where) ?? [];
  const host = bracket ?? plain;
  if (host === undefined || Number(digits) > 65_535) {
    throw new SetupError(`GEPA_LISTEN=${where}: write fd:3, HOST:PORT or [HOST]:PORT`);
  }
  return { host, port: Number(digits), allowedHosts };
}

/** The bound address of a listening server; undefined for a unix socket. */
export function boundAddress(server: Server): string | undefined {
  return (server.address() as AddressInfo | null)?.address;
}

/** The URL of the methods on a listening server. */
export function urlOf(server: Server, address: ListenAddress): string {
  const bound = server.address() as AddressInfo | null;
  if (bound === null) return `http+unix://${encodeURIComponent(pathOfSocket(address.descriptor))}/rpc`;
  return `http://${bracketed(address.descriptor === undefined ? address.host : bound.address)}:${bound.port}/rpc`;
}

/** The path of a unix socket, which Node does not expose; empty if the system does not either. */
function pathOfSocket(descriptor: number | undefined): string {
  try {
    const inode = /\d+/.exec(readlinkSync(`/proc/self/fd/${descriptor}`))?.[0];
    // Num RefCount Protocol Flags Type St Inode Path
    const lines = readFileSync("/proc/net/unix", "utf8").split("\n");
    return lines.map((line) => /^(?:\S+ +){6}(\d+) (.+)$/.exec(line)).find((row) => row?.[1] === inode)?.[2] ?? "";
  } catch {
    return ""; // not Linux
  }
}
