/** The HTTP rules of the contract, from `Request` to `Response`: a handler for Bun, Deno, Workers, Hono, Next and other runtimes with fetch. */

import { checkToken, hostChecker, isAuthorized, TOKEN_HEADER } from "../base/access.js";
import { Cancellation } from "../base/cancellation.js";
import { anyOf, type OptionsOf, readKnownOptions } from "../base/configuration.js";
import { ENDPOINT_OPTIONS } from "../base/options.js";
import { RpcError } from "../base/rpc-error.js";
import { bytesOf } from "../base/streams.js";
import { LimitExceeded, Unauthorized } from "../generated/errors.js";
import { checkProgram, type Program } from "../program/program.js";
import { Dispatcher, errorText, invalid, type Transport } from "./dispatcher.js";
import type { MemoryStore } from "./store.js";
import { TrajectoryStore } from "./trajectory-store.js";

const HANDLER_OPTIONS = {
  ...ENDPOINT_OPTIONS,
  /** The bearer token that callers must send; required. */
  token: (given: string | undefined): string => {
    checkToken(given, "the option `token`");
    return given;
  },
  /** The path at which the handler is mounted: methods are at `${basePath}/rpc`; default "". */
  basePath: anyOf(""),
  /** Further host names by which the handler is reached; default: only this machine's own. */
  allowedHosts: anyOf<readonly string[]>([]),
  /** Origins of web pages that may call; default none. */
  allowedOrigins: anyOf<readonly string[]>([]),
  /** Adds calls that outlive their connection, `cancel` and trajectory references; without it every call is independent. */
  store: anyOf<MemoryStore | undefined>(undefined),
};

export type HandlerOptions = OptionsOf<typeof HANDLER_OPTIONS> & { token: string };

export type FetchHandler = (request: Request) => Promise<Response>;

/** Serve a program on any runtime with `fetch`. Throws `SetupError` without a token or without a program. */
export function handler<Data, Output, Component extends string = string>(
  program: Program<Data, Output, Component>,
  options: HandlerOptions,
): FetchHandler {
  const settings = readKnownOptions(program, Object(options), HANDLER_OPTIONS);
  const { token, basePath, allowedHosts, allowedOrigins, store } = settings;
  const served = program as Program;
  checkProgram(served);
  let dispatcher: Promise<Dispatcher> | undefined;
  // Not before the first request: some platforms allow neither random numbers nor waiting while modules load.
  const open = (): Promise<Dispatcher> => {
    dispatcher ??= Dispatcher.create(served, settings, httpTransport(store)).catch((error: unknown) => {
      dispatcher = undefined; // the next request tries again
      throw error;
    });
    return dispatcher;
  };
  const router = new HttpRouter(open, {
    token,
    basePath,
    allowsHost: hostChecker("localhost", allowedHosts),
    allowedOrigins,
  });
  return (request) => {
    const host = request.headers.get("host") ?? new URL(request.url).host;
    return router.answer(request, host, Cancellation.of(request.signal));
  };
}

/** HTTP; without a store every call is independent. */
export function httpTransport(store: MemoryStore | undefined): Transport {
  if (store === undefined) return { offers: ["batch", "example_timeout"], traces: new TrajectoryStore(0) };
  return { offers: ["batch", "idempotency", "async", "partial", "cancel", "example_timeout", "refs"], ...store };
}

interface HttpRouterOptions {
  token: string;
  /** Prefix of the paths: methods are at `${basePath}/rpc`. */
  basePath: string;
  /** Whether a `Host` header is accepted. */
  allowsHost: (host: string | null) => boolean;
  /** Origins of web pages that may call; others are refused. */
  allowedOrigins: readonly string[];
}

const JSON_HEADERS = { "content-type": "application/json" };

const PREFLIGHT = {
  "access-control-allow-methods": "POST",
  "access-control-allow-headers": `authorization, content-type, ${TOKEN_HEADER}`,
  "access-control-max-age": "600",
};

/** The HTTP rules of the contract: hosts, origins, paths, verbs, authentication, status codes. */
export class HttpRouter {
  /** `open` returns the dispatcher, or throws the `RpcError` that explains why the program cannot be served. */
  constructor(
    private readonly open: () => Promise<Dispatcher>,
    private readonly options: HttpRouterOptions,
  ) {}

  /** `host`: the name by which it was called. `closed`: cancelled when the connection closes before the answer. */
  async answer(request: Request, host: string | null, closed: Cancellation): Promise<Response> {
    const { allowsHost, allowedOrigins } = this.options;
    if (!allowsHost(host)) return refusal(403, new Unauthorized(undefined, { reason: "host" }));
    const origin = request.headers.get("origin");
    if (origin !== null && !allowedOrigins.includes(origin)) {
      return refusal(403, new Unauthorized(undefined, { reason: "origin" }));
    }
    const response = await this.#route(request, closed);
    if (origin === null) return response;
    response.headers.set("access-control-allow-origin", origin);
    response.headers.set("vary", "origin");
    return response;
  }

  async #route({ method, url, headers, body }: Request, closed: Cancellation): Promise<Response> {
    const { basePath, token } = this.options;
    const path = new URL(url).pathname;
    if (path === `${basePath}/health`) return this.#health(method);
    if (path !== `${basePath}/rpc`) return refusal(404, invalid(`the path must be ${basePath}/rpc`));
    if (method === "OPTIONS" && headers.has("origin")) return new Response(null, { status: 204, headers: PREFLIGHT });
    if (method !== "POST") return refusal(405, invalid("use POST"), { allow: "POST" });
    if (!isAuthorized((name) => headers.get(name), token)) {
      return refusal(401, new Unauthorized(), { "www-authenticate": "Bearer" });
    }
    const type = headers.get("content-type")?.split(";")[0]?.trim().toLowerCase();
    if (type !== "application/json") return refusal(415, invalid("the content type must be application/json"));
    const encoding = headers.get("content-encoding")?.trim().toLowerCase() ?? "identity";
    if (encoding !== "identity") return refusal(415, invalid("the body must have no Content-Encoding"));
    const dispatcher = await this.#dispatcher();
    if (dispatcher instanceof RpcError) return refusal(200, dispatcher);
    const allowed = dispatcher.discovery.limits.max_request_bytes;
    const isLong = Number(headers.get("content-length") ?? 0) > allowed;
    const bytes = isLong ? undefined : await bytesOf(body, allowed);
    if (bytes === undefined) return refusal(413, new LimitExceeded(undefined, { limit: "max_request_bytes", allowed }));
    const reply = await dispatcher.answerBytes(bytes, closed);
    if (reply.body === null) return new Response(null, { status: 204 });
    return new Response(reply.body, { status: reply.understood ? 200 : 400, headers: JSON_HEADERS });
  }

  async #health(method: string): Promise<Response> {
    if (method !== "GET" && method !== "HEAD") return refusal(405, invalid("use GET"), { allow: "GET, HEAD" });
    const dispatcher = await this.#dispatcher();
    const isReady = dispatcher instanceof Dispatcher && !dispatcher.draining;
    const body = method === "HEAD" ? null : JSON.stringify({ status: isReady ? "ok" : "unavailable" });
    return new Response(body, { status: isReady ? 200 : 503, headers: JSON_HEADERS });
  }

  #dispatcher(): Promise<Dispatcher | RpcError> {
    return this.open().catch((error: unknown) => {
      if (error instanceof RpcError) return error;
      throw error;
    });
  }
}

function refusal(status: number, error: RpcError, headers: Record<string, string> = {}): Response {
  return new Response(errorText(null, error), { status, headers: { ...JSON_HEADERS, ...headers } });
}
