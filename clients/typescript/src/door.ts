/** The HTTP side of the contract, whatever the runtime: who may come in, and what each refusal looks like. */

import type { Cancellation } from "./cancellation.js";
import { Endpoint } from "./endpoint.js";
import { errorText } from "./envelope.js";
import { InvalidRequest, LimitExceeded, RpcError, Unauthorized } from "./errors.js";
import { isAuthorized, TOKEN_HEADER } from "./token.js";

/** One HTTP request as the door needs it. */
export interface Exchange {
  method: string;
  /** Without the query. */
  path: string;
  header(name: string): string | null;
  /** The body; undefined where it is longer than `limit` bytes, in which case it was not read through. */
  body(limit: number): Promise<Uint8Array | undefined>;
  /** Cancelled when the connection closes before the answer. */
  closed: Cancellation;
}

export interface HttpReply {
  status: number;
  headers: Record<string, string>;
  body: string | null;
}

export interface DoorOptions {
  token: string;
  /** Where the methods are: `${basePath}/rpc`. */
  basePath: string;
  /** Whether a `Host` is one of ours. */
  allowsHost: (host: string | null) => boolean;
  /** Origins of web pages that may call; none other is answered. */
  allowedOrigins: readonly string[];
}

/** The only value of `Expect` that HTTP defines. */
const CONTINUE = "100-continue";

const JSON_HEADERS = { "content-type": "application/json" };

export class Door {
  /** `open` gives the served program, or throws the `RpcError` that says why there is none. */
  constructor(
    private readonly open: () => Promise<Endpoint>,
    private readonly options: DoorOptions,
  ) {}

  async answer(exchange: Exchange): Promise<HttpReply> {
    const { basePath, allowsHost, allowedOrigins, token } = this.options;
    if (!allowsHost(exchange.header("host"))) return refused(403, new Unauthorized(undefined, { reason: "host" }));
    const origin = exchange.header("origin");
    if (origin !== null && !allowedOrigins.includes(origin)) {
      return refused(403, new Unauthorized(undefined, { reason: "origin" }));
    }
    const reply = await this.#route(exchange, basePath, token);
    return origin === null ? reply : readableBy(origin, reply);
  }

  async #route(exchange: Exchange, basePath: string, token: string): Promise<HttpReply> {
    const { method, path } = exchange;
    if (path === `${basePath}/health`) return this.#health(method);
    if (path !== `${basePath}/rpc`) return refused(404, invalid(`the path must be ${basePath}/rpc`));
    if (method === "OPTIONS" && exchange.header("origin") !== null) return preflight();
    if (method !== "POST") {
      return refused(405, invalid("use POST"), { allow: "POST" });
    }
    if (!isAuthorized((name) => exchange.header(name), token)) {
      return refused(401, new Unauthorized(), { "www-authenticate": "Bearer" });
    }
    const type = exchange.header("content-type")?.split(";")[0]?.trim().toLowerCase();
    if (type !== "application/json") {
      return refused(415, invalid("the content type must be application/json"));
    }
    const encoding = exchange.header("content-encoding")?.trim().toLowerCase() ?? "identity";
    if (encoding !== "identity") {
      return refused(415, invalid("the body must have no Content-Encoding"));
    }
    const expectation = exchange.header("expect")?.trim().toLowerCase() ?? CONTINUE;
    if (expectation !== CONTINUE) return refused(417, invalid("the only Expect that is met is 100-continue"));
    return this.#answerBody(exchange);
  }

  async #answerBody(exchange: Exchange): Promise<HttpReply> {
    const endpoint = await this.#opened();
    if (endpoint instanceof RpcError) return refused(200, endpoint);
    const allowed = endpoint.discovery.limits.max_request_bytes;
    const body = await exchange.body(allowed);
    if (body === undefined) {
      return refused(413, new LimitExceeded(undefined, { limit: "max_request_bytes", allowed }));
    }
    const reply = await endpoint.answerBytes(body, exchange.closed);
    if (reply.body === null) return { status: 204, headers: {}, body: null };
    return { status: reply.understood ? 200 : 400, headers: JSON_HEADERS, body: reply.body };
  }

  async #health(method: string): Promise<HttpReply> {
    if (method !== "GET" && method !== "HEAD") {
      return refused(405, invalid("use GET"), { allow: "GET, HEAD" });
    }
    const endpoint = await this.#opened();
    const [status, said] = endpoint instanceof Endpoint && endpoint.ready ? [200, "ok"] : [503, "unavailable"];
    return { status, headers: JSON_HEADERS, body: method === "HEAD" ? null : JSON.stringify({ status: said }) };
  }

  async #opened(): Promise<Endpoint | RpcError> {
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

function refused(status: number, error: RpcError, headers: Record<string, string> = {}): HttpReply {
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

function readableBy(origin: string, reply: HttpReply): HttpReply {
  return { ...reply, headers: { ...reply.headers, "access-control-allow-origin": origin, vary: "origin" } };
}
