/** A fetch handler, `Request` to `Response`, for Bun, Deno, Workers, Hono, Next and other runtimes with fetch. */

import { Cancellation } from "../base/cancellation.js";
import { anyOf, type OptionsOf, readKnownOptions } from "../base/configuration.js";
import { hostChecker } from "../base/hosts.js";
import { checkToken } from "../base/token.js";
import { checkProgram } from "../program/check-program.js";
import type { Program } from "../program/program.js";
import { Dispatcher } from "./dispatcher.js";
import { HttpRouter } from "./http-router.js";
import { ENDPOINT_OPTIONS } from "./options.js";
import { httpTransport, type MemoryStore } from "./store.js";

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
