/** The HTTP rules of the contract on any runtime, from `Request` to `Response`: authentication, hosts, origins, paths, verbs, status codes. */

import { bytesOf } from "../base/bytes.js";
import type { Cancellation } from "../base/cancellation.js";
import { RpcError } from "../base/rpc-error.js";
import { isAuthorized, TOKEN_HEADER } from "../base/token.js";
import { LimitExceeded, Unauthorized } from "../generated/errors.js";
import { Dispatcher } from "./dispatcher.js";
import { errorText, invalid } from "./envelope.js";

export interface HttpRouterOptions {
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
