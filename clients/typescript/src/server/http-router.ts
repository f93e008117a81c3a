/** The HTTP rules of the contract on any runtime: authentication, hosts, origins, paths, verbs, status codes. */

import type { Cancellation } from "../base/cancellation.js";
import { RpcError } from "../base/rpc-error.js";
import { isAuthorized, TOKEN_HEADER } from "../base/token.js";
import { InvalidRequest, LimitExceeded, Unauthorized } from "../generated/errors.js";
import { Dispatcher } from "./dispatcher.js";
import { errorText } from "./envelope.js";

/** One HTTP request, independent of the runtime. */
export interface HttpExchange {
  method: string;
  /** The path without the query. */
  path: string;
  header(name: string): string | null;
  /** The body; undefined if it is longer than `limit` bytes, in which case reading stopped. */
  body(limit: number): Promise<Uint8Array | undefined>;
  /** Cancelled when the connection closes before the answer. */
  closed: Cancellation;
}

export interface HttpReply {
  status: number;
  headers: Record<string, string>;
  body: string | null;
}

export interface HttpRouterOptions {
  token: string;
  /** Prefix of the paths: methods are at `${basePath}/rpc`. */
  basePath: string;
  /** Whether a `Host` header is accepted. */
  allowsHost: (host: string | null) => boolean;
  /** Origins of web pages that may call; others are refused. */
  allowedOrigins: readonly string[];
}

/** The only value of `Expect` that HTTP defines. */
const CONTINUE = "100-continue";

const JSON_HEADERS = { "content-type": "application/json" };

export class HttpRouter {
  /** `open` returns the dispatcher, or throws the `RpcError` that explains why the program cannot be served. */
  constructor(
    private readonly open: () => Promise<Dispatcher>,
    private readonly options: HttpRouterOptions,
  ) {}

  async answer(exchange: HttpExchange): Promise<HttpReply> {
    const { basePath, allowsHost, allowedOrigins, token } = this.options;
    if (!allowsHost(exchange.header("host"))) return errorReply(403, new Unauthorized(undefined, { reason: "host" }));
    const origin = exchange.header("origin");
    if (origin !== null && !allowedOrigins.includes(origin)) {
      return errorReply(403, new Unauthorized(undefined, { reason: "origin" }));
    }
    const reply = await this.#route(exchange, basePath, token);
    return origin === null ? reply : withCorsHeader(origin, reply);
  }

  async #route(exchange: HttpExchange, basePath: string, token: string): Promise<HttpReply> {
    const { method, path } = exchange;
    if (path === `${basePath}/health`) return this.#health(method);
    if (path !== `${basePath}/rpc`) return errorReply(404, invalid(`the path must be ${basePath}/rpc`));
    if (method === "OPTIONS" && exchange.header("origin") !== null) return preflight();
    if (method !== "POST") {
      return errorReply(405, invalid("use POST"), { allow: "POST" });
    }
    if (!isAuthorized((name) => exchange.header(name), token)) {
      return errorReply(401, new Unauthorized(), { "www-authenticate": "Bearer" });
    }
    const type = exchange.header("content-type")?.split(";")[0]?.trim().toLowerCase();
    if (type !== "application/json") {
      return errorReply(415, invalid("the content type must be application/json"));
    }
    const encoding = exchange.header("content-encoding")?.trim().toLowerCase() ?? "identity";
    if (encoding !== "identity") {
      return errorReply(415, invalid("the body must have no Content-Encoding"));
    }
    const expectation = exchange.header("expect")?.trim().toLowerCase() ?? CONTINUE;
    if (expectation !== CONTINUE) return errorReply(417, invalid("the only Expect accepted is 100-continue"));
    return this.#answerBody(exchange);
  }

  async #answerBody(exchange: HttpExchange): Promise<HttpReply> {
    const dispatcher = await this.#dispatcher();
    if (dispatcher instanceof RpcError) return errorReply(200, dispatcher);
    const allowed = dispatcher.discovery.limits.max_request_bytes;
    const body = await exchange.body(allowed);
    if (body === undefined) {
      return errorReply(413, new LimitExceeded(undefined, { limit: "max_request_bytes", allowed }));
    }
    const reply = await dispatcher.answerBytes(body, exchange.closed);
    if (reply.body === null) return { status: 204, headers: {}, body: null };
    return { status: reply.understood ? 200 : 400, headers: JSON_HEADERS, body: reply.body };
  }

  async #health(method: string): Promise<HttpReply> {
    if (method !== "GET" && method !== "HEAD") {
      return errorReply(405, invalid("use GET"), { allow: "GET, HEAD" });
    }
    const dispatcher = await this.#dispatcher();
    const [code, status] = dispatcher instanceof Dispatcher && dispatcher.ready ? [200, "ok"] : [503, "unavailable"];
    return { status: code, headers: JSON_HEADERS, body: method === "HEAD" ? null : JSON.stringify({ status }) };
  }

  async #dispatcher(): Promise<Dispatcher | RpcError> {
    try {
      return await this.open();
    } catch (error) {
      if (error instanceof RpcError) return error;
      throw error;
    }
  }
}

function invalid(reason: string): InvalidRequest {
  return new InvalidRequest(undefined, { reason });
}

function errorReply(status: number, error: RpcError, headers: Record<string, string> = {}): HttpReply {
  return { status, headers: { ...JSON_HEADERS, ...headers }, body: errorText(null, error) };
}

function preflight(): HttpReply {
  const headers = {
    "access-control-allow-methods": "POST",
    "access-control-allow-headers": `authorization, content-type, ${TOKEN_HEADER}`,
    "access-control-max-age": "600",
  };
  return { status: 204, headers, body: null };
}

function withCorsHeader(origin: string, reply: HttpReply): HttpReply {
  return { ...reply, headers: { ...reply.headers, "access-control-allow-origin": origin, vary: "origin" } };
}
