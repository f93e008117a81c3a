/** A fetch handler, `Request` to `Response`, for Bun, Deno, Workers, Hono, Next and whatever else speaks fetch. */

import { bytesOf } from "./bytes.js";
import { Cancellation } from "./cancellation.js";
import { storeCarrier } from "./carriers.js";
import { Door, type Exchange, type HttpReply } from "./door.js";
import { Endpoint } from "./endpoint.js";
import { hostChecker } from "./hosts.js";
import { ENDPOINT_OPTIONS, type EndpointOptions, settingsOf } from "./options.js";
import { checkProgram } from "./prepare.js";
import type { Program } from "./program.js";
import { namesOf, noneInProgram, onlyKnown } from "./setup.js";
import type { MemoryStore } from "./store.js";
import { checkToken } from "./token.js";

export interface HandlerOptions extends EndpointOptions {
  /** The bearer token callers must show; without one `handler` throws. */
  token: string;
  /** The path the handler is mounted at, so that methods are at `${basePath}/rpc`; "" when not given. */
  basePath?: string;
  /** The names this is reached by; none beyond this machine's own when not given. */
  allowedHosts?: readonly string[];
  /** Origins of web pages that may call; none when not given. */
  allowedOrigins?: readonly string[];
  /** Adds calls that outlive their connection, `cancel` and refs; without it every call stands alone. */
  store?: MemoryStore;
}

const KNOWN = [
  ...ENDPOINT_OPTIONS,
  ...namesOf<Omit<HandlerOptions, keyof EndpointOptions>>({
    token: 1,
    basePath: 1,
    allowedHosts: 1,
    allowedOrigins: 1,
    store: 1,
  }),
];

export type FetchHandler = (request: Request) => Promise<Response>;

/** Serves a program wherever `fetch` is spoken. Throws `SetupError` without a token or without a program. */
export function handler<Data, Output>(program: Program<Data, Output>, options: HandlerOptions): FetchHandler {
  checkToken(options?.token, "the option `token`");
  onlyKnown(options, KNOWN);
  noneInProgram(Object(program), KNOWN);
  const { token, basePath = "", allowedHosts = [], allowedOrigins = [], store } = options;
  const served = program as Program;
  checkProgram(served);
  settingsOf(options);
  let endpoint: Promise<Endpoint> | undefined;
  // Not before the first request: some platforms allow neither random numbers nor waiting while modules load.
  const open = (): Promise<Endpoint> => {
    endpoint ??= Endpoint.create(served, options, storeCarrier(store)).catch((error: unknown) => {
      endpoint = undefined; // what failed may work at the next request
      throw error;
    });
    return endpoint;
  };
  const door = new Door(open, { token, basePath, allowsHost: hostChecker("localhost", allowedHosts), allowedOrigins });
  return async (request) => toResponse(await door.answer(toExchange(request)));
}

function toExchange(request: Request): Exchange {
  const url = new URL(request.url);
  return {
    method: request.method,
    path: url.pathname,
    header: (name) => request.headers.get(name) ?? (name === "host" ? url.host : null),
    body: (limit) => bodyOf(request, limit),
    closed: Cancellation.of(request.signal),
  };
}

async function bodyOf(request: Request, limit: number): Promise<Uint8Array | undefined> {
  if (Number(request.headers.get("content-length") ?? 0) > limit) return undefined;
  return bytesOf(request.body, limit);
}

function toResponse({ status, headers, body }: HttpReply): Response {
  return new Response(body, { status, headers });
}
